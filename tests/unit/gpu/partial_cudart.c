/* A library with the soname of a CUDA runtime and hardly any of its functions. */
int cudaRuntimeGetVersion(int* version) {
  *version = 11080;
  return 0;
}
