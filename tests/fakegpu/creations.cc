#include "tests/fakegpu/creations.h"

#include <unistd.h>

#include <cstdint>

namespace fakegpu {

void Creations::add(const char* id, std::size_t bytes, int size, int rank) {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (std::size_t i = 0; i < bytes; ++i) {
    hash = (hash ^ static_cast<unsigned char>(id[i])) * 1099511628211u;
  }
  const std::lock_guard lock(mutex_);
  all_.push_back({gettid(), hash, size, rank});
}

bool Creations::get(long index, fakegpu_creation* creation) {
  const std::lock_guard lock(mutex_);
  if (index < 0 || index >= static_cast<long>(all_.size())) return false;
  *creation = all_[static_cast<std::size_t>(index)];
  return true;
}

void Creations::forget() {
  const std::lock_guard lock(mutex_);
  all_.clear();
}

}  // namespace fakegpu
