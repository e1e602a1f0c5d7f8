/* The handwritten digits of digits.csv, split into a training and a test part. One owner, one
 * thread. */
#ifndef KOLO_EXAMPLES_DIGITS_DATASET_H
#define KOLO_EXAMPLES_DIGITS_DATASET_H

#include <stddef.h>

enum { kFeatures = 64, kClasses = 10 };

struct examples {
  size_t count;
  float* features; /* [count][kFeatures], 0 to 1 */
  int* labels;     /* [count], 0 to kClasses - 1 */
};

struct dataset {
  struct examples train;
  struct examples test; /* the rows with (row / 10) % 5 == 4 */
};

/* 0, or -1 after a line on stderr that says what is wrong with the file. */
int dataset_load(const char* path, struct dataset* data);
void dataset_free(struct dataset* data);

#endif
