#pragma once

template <typename T>
__device__ T plus(T a, T b)
{
    return a + b;
}
