#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "device.h"

static cudaStream_t stream;

static void require(cudaError_t error) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "digits: CUDA: %s\n", cudaGetErrorString(error));
  exit(1);
}

void device_open(int local_rank) {
  int devices = 0;
  require(cudaGetDeviceCount(&devices));
  require(cudaSetDevice(local_rank % devices));
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
}

void device_close(void) { require(cudaStreamDestroy(stream)); }

void* device_stream(void) { return stream; }

float* device_alloc(size_t count) {
  void* memory = NULL;
  require(cudaMalloc(&memory, count * sizeof(float)));
  return memory;
}

void device_free(float* memory) { require(cudaFree(memory)); }

/* CUDA has read pageable memory when the call returns. */
void device_put(float* on_device, const float* from, size_t count) {
  require(cudaMemcpyAsync(on_device, from, count * sizeof *from, cudaMemcpyHostToDevice, stream));
}

void device_get(float* to, const float* on_device, size_t count) {
  require(cudaMemcpyAsync(to, on_device, count * sizeof *to, cudaMemcpyDeviceToHost, stream));
}

void device_wait(void) { require(cudaStreamSynchronize(stream)); }
