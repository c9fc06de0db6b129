// A stand-in for the HIP runtime: one GPU with host memory, of the architecture in MXR_DOUBLE_ARCH.
// Source of the names, versions and the properties' layout: ROCm/HIP, include/hip/hip_runtime_api.h (ROCm 6 and later).
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {
constexpr std::size_t kPropertiesSize = 1472;  // sizeof(hipDeviceProp_tR0600)
constexpr std::size_t kNameSize = 256;         // name comes first
constexpr std::size_t kArchAt = 1160;          // gcnArchName, 256 bytes

int take(void** pointer, std::size_t size) {
  *pointer = std::calloc(1, size ? size : 1);
  return *pointer ? 0 : 2;
}
}  // namespace

extern "C" {
int hipGetDeviceCount(int* count) { *count = 1; return 0; }
int hipGetDevice(int* device) { *device = 0; return 0; }
int hipSetDevice(int) { return 0; }
int hipDeviceSynchronize() { return 0; }
int hipDeviceGetAttribute(int* value, int, int) { *value = 0; return 0; }

int hipGetDevicePropertiesR0600(void* properties, int) {
  const char* arch = std::getenv("MXR_DOUBLE_ARCH");
  char* bytes = static_cast<char*>(properties);
  std::memset(bytes, 0, kPropertiesSize);
  std::snprintf(bytes, kNameSize, "stand-in");
  std::snprintf(bytes + kArchAt, kNameSize, "%s", arch ? arch : "gfx942:sramecc+:xnack-");
  return 0;
}

int hipMalloc(void** pointer, std::size_t size) { return take(pointer, size); }
int hipHostMalloc(void** pointer, std::size_t size, unsigned) { return take(pointer, size); }
int hipHostGetDevicePointer(void** device, void* host, unsigned) { *device = host; return 0; }
int hipFree(void* pointer) { std::free(pointer); return 0; }
int hipHostFree(void* pointer) { std::free(pointer); return 0; }
int hipMemGetInfo(std::size_t* unused, std::size_t* total) { *unused = *total = std::size_t{64} << 30; return 0; }

int hipMemcpy(void* to, const void* from, std::size_t size, int) { std::memmove(to, from, size); return 0; }
int hipMemcpyAsync(void* to, const void* from, std::size_t size, int, void*) { std::memmove(to, from, size); return 0; }
int hipMemcpyWithStream(void* to, const void* from, std::size_t size, int, void*) {
  std::memmove(to, from, size);
  return 0;
}
int hipMemset(void* to, int value, std::size_t size) { std::memset(to, value, size); return 0; }
int hipMemsetAsync(void* to, int value, std::size_t size, void*) { std::memset(to, value, size); return 0; }

int hipStreamCreateWithFlags(void** stream, unsigned) { return take(stream, 8); }
int hipStreamDestroy(void* stream) { std::free(stream); return 0; }
int hipStreamSynchronize(void*) { return 0; }
int hipStreamQuery(void*) { return 0; }
int hipStreamWaitEvent(void*, void*, unsigned) { return 0; }
int hipLaunchHostFunc(void*, void (*function)(void*), void* data) { function(data); return 0; }
int hipEventCreateWithFlags(void** event, unsigned) { return take(event, 8); }
int hipEventDestroy(void* event) { std::free(event); return 0; }
int hipEventRecord(void*, void*) { return 0; }
int hipEventSynchronize(void*) { return 0; }
int hipEventQuery(void*) { return 0; }

int hipGetLastError() { return 0; }
int hipPeekAtLastError() { return 0; }
const char* hipGetErrorString(int) { return "no error of a stand-in"; }
const char* hipGetErrorName(int) { return "stand-in"; }
}
