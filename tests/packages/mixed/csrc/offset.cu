extern "C" __device__ float offset(float x) { return x + 0.25f; }
