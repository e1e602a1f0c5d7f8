/* splitmix64: the same numbers from the same seed on every machine. */
#ifndef KOLO_EXAMPLES_DIGITS_RANDOM_H
#define KOLO_EXAMPLES_DIGITS_RANDOM_H

#include <stdint.h>

static inline uint64_t random_next(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/* From 0 to 1, 1 left out; exact in a float. */
static inline float random_unit(uint64_t* state) {
  return (float)(random_next(state) >> 40) * (1.0f / 16777216.0f);
}

#endif
