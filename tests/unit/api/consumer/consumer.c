#include <kolo/kolo.h>
#include <stdio.h>

int main(void) {
  kolo_context* context = NULL;
  float values[3] = {1, 2, 3};
  if (kolo_init(NULL, &context) != KOLO_OK ||
      kolo_allreduce(context, values, values, 3, KOLO_FLOAT32, KOLO_SUM, NULL, NULL) != KOLO_OK ||
      kolo_shutdown(context) != KOLO_OK) {
    fprintf(stderr, "%s\n", kolo_last_error());
    return 1;
  }
  printf("C: kolo %s, %g\n", kolo_version(), values[2]);
  return values[2] == 3 ? 0 : 1;
}
