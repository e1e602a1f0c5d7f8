#include <stdio.h>
#include <stdlib.h>

#include "device.h"

void device_open(int local_rank) {
  (void)local_rank;
  fprintf(stderr,
          "digits: this build is without CUDA: take digits_gpu, which is built where CMake finds "
          "the CUDA toolkit\n");
  exit(1);
}

/* None of these is reached. */
void device_close(void) {}
void* device_stream(void) { return NULL; }
float* device_alloc(size_t count) { return (void)count, NULL; }
void device_free(float* memory) { (void)memory; }
void device_put(float* on_device, const float* from, size_t count) {
  (void)on_device, (void)from, (void)count;
}
void device_get(float* to, const float* on_device, size_t count) {
  (void)to, (void)on_device, (void)count;
}
void device_wait(void) {}
