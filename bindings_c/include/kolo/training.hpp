// What a trainer needs beside the collectives, in small parts that may be used alone; included by
// kolo.hpp. From C++20 on (-std=c++20, CMAKE_CXX_STANDARD 20): with an older standard none of these
// names is there. docs/training.md shows all of it.
//
//     sampler.hpp       ShardSampler         which examples are this rank's, in every epoch
//     gradients.hpp     Tensor               a name and its elements
//                       broadcast_parameters all ranks start from one rank's weights
//                       GradientReducer      gradients are reduced while the backward pass goes on
//     numerics.hpp      sync_batch_norm      mean and variance over the batches of all ranks
//                       clip_by_global_norm  gradients no longer than they may be
//                       LossScaler           f16 gradients neither vanish nor overflow
//
// Errors are exceptions of the class Error, as everywhere in kolo.hpp.
#ifndef KOLO_TRAINING_HPP_
#define KOLO_TRAINING_HPP_

#include "kolo/gradients.hpp"
#include "kolo/numerics.hpp"
#include "kolo/sampler.hpp"

#endif  // KOLO_TRAINING_HPP_
