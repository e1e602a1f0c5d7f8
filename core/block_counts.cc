#include "core/block_counts.h"

#include <numeric>

#include "core/process_sets.h"

namespace kolo::internal {
namespace {

std::size_t sum_of(std::span<const std::uint64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

}  // namespace

std::span<const std::uint64_t> given_counts(const RequestState& request, std::size_t index) {
  if (!request.counts.empty() && !request.counts[index].empty()) return request.counts[index];
  return request.unit->tensors[index].counts;
}

Extents<std::size_t> elements_of(const RequestState& request, std::size_t index) {
  const TensorSpec& spec = request.unit->tensors[index];
  const auto size = static_cast<std::size_t>(request.set->size());
  const auto place = static_cast<std::size_t>(request.set->place);
  const std::span<const std::uint64_t> counts = given_counts(request, index);
  const std::size_t count = spec.count;
  if (counts.empty()) return extents_of(spec.kind, count, count * size, count * size);
  if (spec.kind != OpKind::kAlltoall) {
    const std::size_t all = sum_of(counts);
    return extents_of(spec.kind, std::size_t{counts[place]}, all, all);
  }
  std::size_t received = 0;
  for (std::size_t from = 0; from < size; ++from) received += counts[from * size + place];
  return extents_of(spec.kind, count, sum_of(counts.subspan(place * size, size)), received);
}

void put_blocks(const RequestState& request, std::size_t index, std::size_t unit,
                std::vector<std::size_t>& blocks) {
  const std::span<const std::uint64_t> counts = given_counts(request, index);
  const std::size_t even = request.unit->tensors[index].count;
  blocks.assign(static_cast<std::size_t>(request.set->size()), even * unit);
  for (std::size_t i = 0; i < counts.size(); ++i) blocks[i] = counts[i] * unit;
}

void put_exchange(const RequestState& request, std::size_t index, std::size_t unit,
                  std::vector<std::size_t>& sent, std::vector<std::size_t>& received) {
  const std::span<const std::uint64_t> all = given_counts(request, index);
  const auto size = static_cast<std::size_t>(request.set->size());
  const auto place = static_cast<std::size_t>(request.set->place);
  sent.assign(size, request.unit->tensors[index].count * unit);
  received = sent;
  for (std::size_t peer = 0; peer < size && !all.empty(); ++peer) {
    sent[peer] = all[place * size + peer] * unit;
    received[peer] = all[peer * size + place] * unit;
  }
}

}  // namespace kolo::internal
