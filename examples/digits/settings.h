/* The command line of the digits trainer. */
#ifndef KOLO_EXAMPLES_DIGITS_SETTINGS_H
#define KOLO_EXAMPLES_DIGITS_SETTINGS_H

#include <stddef.h>
#include <stdint.h>

struct settings {
  const char* data;
  size_t hidden;
  size_t batch; /* over all ranks */
  size_t epochs;
  uint64_t seed;
  size_t shards;  /* above 0: one process plays that many ranks, without kolo */
  int all_reduce; /* 0 shows what happens without: every rank trains on its own */
  int device;     /* 1: weights and gradients are in the memory of a GPU */
};

/* 0: go on; else the process is to end with *exit_code (after --help or a mistake). */
int settings_parse(int argc, char** argv, struct settings* settings, int* exit_code);

#endif
