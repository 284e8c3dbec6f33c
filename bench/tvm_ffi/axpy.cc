// The function that bench/launch.py launches by apache-tvm-ffi: axpy with the checks of a packaged kernel.
//
//     site=$(python -c 'import tvm_ffi, os; print(os.path.dirname(tvm_ffi.__file__))')
//     g++ -std=c++17 -O2 -shared -fPIC -I $site/include bench/tvm_ffi/axpy.cc -L $site/lib -ltvm_ffi -o axpy_tvm_ffi.so
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <cstring>

namespace {

using Launch = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);

Launch cu_launch_kernel;
void* kernel;
unsigned grid, block;

void Setup(int64_t launch_address, int64_t kernel_address, int64_t grid_size, int64_t block_size) {
  cu_launch_kernel = reinterpret_cast<Launch>(launch_address);
  kernel = reinterpret_cast<void*>(kernel_address);
  grid = static_cast<unsigned>(grid_size);
  block = static_cast<unsigned>(block_size);
}

// The block of parameters: a float, then for each array meminfo, parent, items, itemsize, data, extent and stride.
void Pack(unsigned char* place, const tvm::ffi::TensorView& array, DLDevice device) {
  if (array.ndim() != 1 || array.dtype().code != kDLFloat || array.dtype().bits != 32 || !array.IsContiguous() ||
      array.device().device_type != kDLCUDA || array.device().device_id != device.device_id)
    TVM_FFI_THROW(TypeError) << "a contiguous array of float32 on one GPU belongs here";
  int64_t words[7] = {0, 0, array.size(0), 4, reinterpret_cast<int64_t>(array.data_ptr()), array.size(0), 4};
  std::memcpy(place, words, sizeof words);
}

void Axpy(double a, tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView out) {
  alignas(16) unsigned char parameters[8 + 3 * 56];
  float narrow = static_cast<float>(a);
  std::memset(parameters, 0, 8);
  std::memcpy(parameters, &narrow, 4);
  Pack(parameters + 8, x, x.device());
  Pack(parameters + 64, y, x.device());
  Pack(parameters + 120, out, x.device());
  size_t size = sizeof parameters;
  void* extra[] = {reinterpret_cast<void*>(1), parameters, reinterpret_cast<void*>(2), &size, nullptr};
  void* stream = TVMFFIEnvGetStream(kDLCUDA, x.device().device_id);
  if (cu_launch_kernel(kernel, grid, 1, 1, block, 1, 1, 0, stream, nullptr, extra))
    TVM_FFI_THROW(RuntimeError) << "the driver refused the launch";
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(setup, Setup);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(axpy, Axpy);
