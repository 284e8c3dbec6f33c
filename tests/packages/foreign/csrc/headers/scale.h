#pragma once
__device__ inline float scaled(float x) { return SCALE * x; }
