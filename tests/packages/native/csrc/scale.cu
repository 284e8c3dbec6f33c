#include "scale.h"

extern "C" __device__ float scaled(float x) { return SCALE * x; }
