/* The C snippets of docs/training.md as functions. */
#pragma once

#include <kolo/kolo.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number of ranks of the set if this one is not in it. */
size_t place_in_set(kolo_context* kolo, int32_t pset);
/* Adds up what each rank has found; sums: [ranks], zeros. */
void gather_rows(kolo_context* kolo, const int32_t* found, size_t found_count, int32_t* sums);
void train_persistently(kolo_context* kolo, float* weight, float* bias, size_t n, int steps,
                        void (*backward)(kolo_context*, float*, float*));
void be_told(kolo_context* kolo, float* gradient, size_t n, void (*other_work)(void));

#ifdef __cplusplus
}
#endif
