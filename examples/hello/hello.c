/* kolo in a dozen lines: every rank gives its number plus one, and all of them get the sum.
 *
 *   kolorun -np 4 hello */
#include <kolo/kolo.h>
#include <stdio.h>

int main(void) {
  kolo_context* kolo = NULL;
  if (kolo_init(NULL, &kolo) != KOLO_OK) return fprintf(stderr, "%s\n", kolo_last_error()), 1;

  double x = kolo_rank(kolo) + 1;
  if (kolo_allreduce(kolo, &x, &x, 1, KOLO_FLOAT64, KOLO_SUM, NULL, NULL) != KOLO_OK) {
    return fprintf(stderr, "%s\n", kolo_last_error()), 1;
  }
  printf("rank %d of %d: the sum is %g\n", kolo_rank(kolo), kolo_size(kolo), x);

  return kolo_shutdown(kolo) == KOLO_OK ? 0 : 1;
}
