#include "dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMaxRows = 1 << 20, kMaxLine = 1024 };

static int is_test_row(size_t row) { return (row / 10) % 5 == 4; }

/* Reads "f0,f1,...,f63,class". */
static int parse_row(const char* line, float* features, int* label) {
  char* end = NULL;
  for (int i = 0; i < kFeatures; i++) {
    const long value = strtol(line, &end, 10);
    if (end == line || *end != ',' || value < 0 || value > 16) return -1;
    features[i] = (float)value / 16.0f;
    line = end + 1;
  }
  const long value = strtol(line, &end, 10);
  if (end == line || (*end != '\n' && *end != '\0') || value < 0 || value >= kClasses) return -1;
  *label = (int)value;
  return 0;
}

static int append(struct examples* examples, size_t* capacity, const float* features, int label) {
  if (examples->count == *capacity) {
    const size_t larger = *capacity == 0 ? 256 : 2 * *capacity;
    float* more_features = realloc(examples->features, larger * kFeatures * sizeof *more_features);
    if (more_features == NULL) return -1;
    examples->features = more_features;
    int* more_labels = realloc(examples->labels, larger * sizeof *more_labels);
    if (more_labels == NULL) return -1;
    examples->labels = more_labels;
    *capacity = larger;
  }
  memcpy(examples->features + examples->count * kFeatures, features, kFeatures * sizeof *features);
  examples->labels[examples->count++] = label;
  return 0;
}

static int read_rows(FILE* file, const char* path, struct dataset* data) {
  char line[kMaxLine];
  float features[kFeatures];
  int label = 0;
  size_t train_capacity = 0;
  size_t test_capacity = 0;
  for (size_t row = 0; row < kMaxRows && fgets(line, sizeof line, file) != NULL; row++) {
    if (parse_row(line, features, &label) != 0) {
      fprintf(stderr, "digits: %s:%zu: not 64 numbers from 0 to 16 and a class\n", path, row + 1);
      return -1;
    }
    const int failed = is_test_row(row) ? append(&data->test, &test_capacity, features, label)
                                        : append(&data->train, &train_capacity, features, label);
    if (failed) {
      fprintf(stderr, "digits: out of memory at %s:%zu\n", path, row + 1);
      return -1;
    }
  }
  if (data->train.count == 0 || data->test.count == 0) {
    fprintf(stderr, "digits: %s holds too few rows\n", path);
    return -1;
  }
  return 0;
}

int dataset_load(const char* path, struct dataset* data) {
  memset(data, 0, sizeof *data);
  FILE* file = fopen(path, "r");
  if (file == NULL) {
    fprintf(stderr, "digits: cannot open %s; name the file with --data\n", path);
    return -1;
  }
  const int result = read_rows(file, path, data);
  fclose(file);
  if (result != 0) dataset_free(data);
  return result;
}

void dataset_free(struct dataset* data) {
  free(data->train.features);
  free(data->train.labels);
  free(data->test.features);
  free(data->test.labels);
  memset(data, 0, sizeof *data);
}
