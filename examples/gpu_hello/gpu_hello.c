/* kolo with tensors on GPUs: every rank fills one on its device, all of them get the sum there, and
 * the rank copies it back. The stream waits for the sum; the host waits once, at the end.
 *
 *   kolorun -np 4 gpu_hello */
#include <cuda_runtime_api.h>
#include <kolo/kolo.h>
#include <stdio.h>
#include <stdlib.h>

enum { kCount = 1000, kNoDevice = 77 };

static void cuda(cudaError_t error) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "gpu_hello: CUDA: %s\n", cudaGetErrorString(error));
  exit(1);
}

static void check(kolo_status status) {
  if (status == KOLO_OK) return;
  fprintf(stderr, "gpu_hello: %s\n", kolo_last_error());
  exit(1);
}

int main(void) {
  int devices = 0;
  const cudaError_t found = cudaGetDeviceCount(&devices);
  if (found != cudaSuccess) {
    fprintf(stderr, "gpu_hello: no GPU here: %s\n", cudaGetErrorString(found));
    return kNoDevice;
  }
  kolo_context* kolo = NULL;
  check(kolo_init(NULL, &kolo));
  const int device = kolo_local_rank(kolo) % devices;
  cuda(cudaSetDevice(device));

  float values[kCount];
  for (int i = 0; i < kCount; i++) values[i] = (float)(kolo_rank(kolo) + 1);
  float* x = NULL;
  cudaStream_t stream;
  cuda(cudaMalloc((void**)&x, sizeof values));
  cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

  cuda(cudaMemcpyAsync(x, values, sizeof values, cudaMemcpyHostToDevice, stream));
  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = "x";
  options.stream = stream; /* the sum comes after the copy */
  kolo_request request = KOLO_REQUEST_NULL;
  check(kolo_allreduce(kolo, x, x, kCount, KOLO_FLOAT32, KOLO_SUM, &options, &request));
  check(kolo_stream_wait(kolo, request, stream, KOLO_FOREVER)); /* what follows, after the sum */
  cuda(cudaMemcpyAsync(values, x, sizeof values, cudaMemcpyDeviceToHost, stream));
  cuda(cudaStreamSynchronize(stream));
  check(kolo_wait(kolo, &request, KOLO_FOREVER)); /* its status; it is complete by now */

  printf("rank %d of %d on device %d of %d: the sum is %g\n", kolo_rank(kolo), kolo_size(kolo),
         device, devices, (double)values[kCount - 1]);
  cuda(cudaStreamDestroy(stream));
  cuda(cudaFree(x));
  check(kolo_shutdown(kolo));
  return 0;
}
