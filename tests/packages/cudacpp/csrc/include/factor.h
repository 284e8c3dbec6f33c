#pragma once
__device__ inline float factor(float a) { return FACTOR * a; }
