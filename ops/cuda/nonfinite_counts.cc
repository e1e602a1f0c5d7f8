#include "ops/cuda/nonfinite_counts.h"

#include <utility>

namespace kolo::internal::cuda {

void NonfiniteCounts::begin(std::size_t tensors) {
  give_back();  // of an operation that has failed
  found_.assign(tensors, -1);
  counted_.clear();
  in_place_count_ = 0;
}

void NonfiniteCounts::add_in_place(std::size_t tensor, void* memory, std::size_t count,
                                   DataType dtype) {
  const bool is_new = in_place_count_ == 0 || in_place_[in_place_count_ - 1].dtype != dtype;
  if (is_new) {
    if (in_place_count_ == in_place_.size()) in_place_.emplace_back();
    InPlace& fresh = in_place_[in_place_count_++];
    fresh.first = counted_.size();
    fresh.dtype = dtype;
    fresh.tensors.clear();
  }
  in_place_[in_place_count_ - 1].tensors.push_back({memory, 0, count});
  add(tensor);
}

void NonfiniteCounts::take(CounterPool& pool) {
  if (counted_.empty()) return;
  const Result<unsigned long long*> counters = pool.take(counted_.size());
  if (!counters) return;
  pool_ = &pool;
  counters_ = *counters;
}

Status NonfiniteCounts::count(const Kernels& kernels, StreamHandle stream) {
  if (counters_ == nullptr) return Status::ok();
  for (std::size_t i = 0; i < in_place_count_; ++i) {
    Batch batch;
    batch.tensors = in_place_[i].tensors;
    batch.tensor_type = batch.buffer_type = in_place_[i].dtype;
    batch.counters = counters_ + in_place_[i].first;
    KOLO_RETURN_IF_ERROR(kernels.count(stream, batch));
  }
  return Status::ok();
}

void NonfiniteCounts::read() {
  if (counters_ == nullptr) return;
  for (std::size_t i = 0; i < counted_.size(); ++i) {
    found_[counted_[i]] = static_cast<std::int64_t>(counters_[i]);
  }
  give_back();
}

void NonfiniteCounts::give_back() {
  if (counters_ == nullptr) return;
  pool_->give_back(std::exchange(counters_, nullptr), counted_.size());
}

}  // namespace kolo::internal::cuda
