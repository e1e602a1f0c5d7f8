#include "tests/sim/data.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "coordinator/payload_book.h"
#include "ops/gathered.h"
#include "ops/neutral.h"
#include "ops/reduce_kernels.h"
#include "tests/sim/random.h"

namespace kolo::internal {
namespace {

template <typename T>
T combine(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::kProd: return a * b;
    case ReduceOp::kMax: return std::max(a, b);
    case ReduceOp::kMin: return std::min(a, b);
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kAdasum: break;
  }
  return a + b;
}

template <typename T>
using Leaf = std::optional<T>;

// T over values [0, n): the left part is the largest power of two below n.
template <typename T>
Leaf<T> tree(ReduceOp op, std::span<const Leaf<T>> values) {
  if (values.size() == 1) return values[0];
  const std::size_t left = std::bit_floor(values.size() - 1);
  const Leaf<T> a = tree(op, values.first(left));
  const Leaf<T> b = tree(op, values.subspan(left));
  if (!a || !b) return a ? a : b;
  return combine(op, *a, *b);
}

// T over the ranks of each host, then over the hosts in the order of their first ranks.
template <typename T>
T tree_of_hosts(ReduceOp op, const std::vector<Leaf<T>>& values, std::span<const int> hosts) {
  std::vector<int> order;
  for (const int host : hosts) {
    if (std::find(order.begin(), order.end(), host) == order.end()) order.push_back(host);
  }
  std::vector<Leaf<T>> partials;
  for (const int host : order) {
    std::vector<Leaf<T>> of_host;
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      if (hosts[i] == host) of_host.push_back(values[i]);
    }
    partials.push_back(tree<T>(op, of_host));
  }
  return *tree<T>(op, partials);
}

// i32: wraps; its average is exact, toward zero.
std::uint32_t reduce_i32(ReduceOp op, const std::vector<Leaf<std::uint32_t>>& words,
                         std::span<const int> hosts) {
  std::vector<Leaf<std::int64_t>> values;
  std::int64_t present = 0;
  for (const auto& word : words) {
    values.emplace_back();
    if (!word) continue;
    values.back() = std::bit_cast<std::int32_t>(*word);
    ++present;
  }
  std::int64_t result = tree_of_hosts(op, values, hosts);
  if (op == ReduceOp::kAvg) result /= present;
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(result));
}

std::uint32_t reduce_f32(const TensorSpec& spec, const std::vector<Leaf<std::uint32_t>>& words,
                         std::span<const int> hosts) {
  std::vector<Leaf<float>> values;
  float present = 0;
  for (const auto& word : words) {
    values.emplace_back();
    if (!word) continue;
    values.back() = std::bit_cast<float>(*word) * static_cast<float>(spec.prescale);
    present += 1;
  }
  float result = tree_of_hosts(spec.op, values, hosts);
  if (spec.op == ReduceOp::kAvg) result /= present;
  return std::bit_cast<std::uint32_t>(result * static_cast<float>(spec.postscale));
}

}  // namespace

std::size_t input_count(const TensorSpec& spec, std::size_t place, std::size_t size) {
  const bool blocks = spec.kind == OpKind::kReduceScatter || spec.kind == OpKind::kAlltoall;
  if (spec.counts.empty()) return blocks ? spec.count * size : spec.count;
  return blocks ? spec.count : spec.counts[place];
}

TensorBlock block_of(const TensorSpec& spec, std::size_t place) {
  if (spec.counts.empty()) return {place * spec.count, spec.count};
  const auto end = spec.counts.begin() + static_cast<std::ptrdiff_t>(place);
  return {std::accumulate(spec.counts.begin(), end, std::size_t{0}), *end};
}

Words input_of(int op, int rank, std::size_t index, const TensorSpec& spec, std::size_t count,
               bool inexact) {
  Words words(count);
  std::uint64_t state = mix(
      mix(static_cast<std::uint64_t>(op) << 20 | static_cast<std::uint64_t>(rank) << 8 | index));
  for (std::uint32_t& word : words) {
    state = mix(state);
    const int small = static_cast<int>(state % 7) - 3;
    if (spec.dtype == DataType::kInt32) {
      word = static_cast<std::uint32_t>(small);
    } else {
      const float value = inexact ? static_cast<float>(static_cast<std::int64_t>(state >> 20)) *
                                        (state & 8 ? 1e-9F : -1e-13F)
                                  : static_cast<float>(small);
      word = std::bit_cast<std::uint32_t>(value);
    }
  }
  return words;
}

std::optional<std::string> payload_of(int op, int rank, const Unit& unit, bool inexact) {
  if (!payload_may_travel(unit)) return std::nullopt;
  const TensorSpec& spec = unit.tensors.front();
  if (spec.kind == OpKind::kBroadcast && spec.root != rank) return std::string();
  const Words words = input_of(op, rank, 0, spec, spec.count, inexact);
  return std::string(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(words[0]));
}

Words reference_allreduce(const TensorSpec& spec, const std::vector<Words>& inputs,
                          std::span<const int> hosts) {
  std::size_t count = 0;
  for (const Words& input : inputs) count = std::max(count, input.size());
  Words result(count);
  for (std::size_t i = 0; i < result.size(); ++i) {
    std::vector<Leaf<std::uint32_t>> words;
    for (const Words& input : inputs) {
      words.push_back(input.empty() ? Leaf<std::uint32_t>() : Leaf<std::uint32_t>(input[i]));
    }
    result[i] = spec.dtype == DataType::kInt32 ? reduce_i32(spec.op, words, hosts)
                                               : reduce_f32(spec, words, hosts);
  }
  return result;
}

Words fused_allreduce(const TensorSpec& spec, const std::vector<Words>& packed,
                      std::span<const int> hosts) {
  std::size_t count = 0;
  int present = 0;
  for (const Words& words : packed) {
    if (!words.empty()) ++present;
    count = std::max(count, words.size());
  }
  Words result(count);
  if (count == 0) return result;
  const ReduceOp op = spec.op == ReduceOp::kAdasum ? ReduceOp::kSum : spec.op;
  Words neutral(count);  // of who has joined
  fill_neutral(spec.dtype, op, /*prescale=*/1.0, neutral.data(), count);
  std::vector<const std::byte*> inputs;
  for (const Words& words : packed) {
    inputs.push_back(reinterpret_cast<const std::byte*>((words.empty() ? neutral : words).data()));
  }
  const ReductionOrder order(hosts);
  const AlignedBytes scratch = allocate_aligned(reduce_scratch_bytes(order.stack_depth()));
  ReduceCall call;
  call.steps = order.steps().data();
  call.step_count = order.steps().size();
  call.stack_depth = order.stack_depth();
  call.inputs = inputs.data();
  call.output = reinterpret_cast<std::byte*>(result.data());
  call.count = count;
  call.scale.contributors = present;
  call.scratch = scratch.get();
  reduce_kernel(spec.dtype, op).reduce(call);
  return result;
}

Words gathered_result(const TensorSpec& spec, const std::vector<std::string>& payloads,
                      std::size_t root, std::span<const int> hosts) {
  GatheredCollectives gathered;
  std::vector<const std::byte*> contributions;
  for (const std::string& payload : payloads) {
    contributions.push_back(reinterpret_cast<const std::byte*>(payload.data()));
  }
  const std::size_t bytes = spec.count * element_bytes(spec.dtype);
  const bool all = spec.kind == OpKind::kAllgather;
  Words result(spec.count * (all ? payloads.size() : 1));
  switch (spec.kind) {
    case OpKind::kAllreduce:
      gathered.allreduce(ReductionOrder(hosts),
                         {nullptr, result.data(), spec.count, spec.prescale, spec.postscale},
                         {spec.dtype, spec.op}, contributions);
      break;
    case OpKind::kAllgather: gathered.allgather(result.data(), bytes, contributions); break;
    case OpKind::kBroadcast: gathered.broadcast(result.data(), bytes, contributions[root]); break;
    case OpKind::kBarrier: break;
    case OpKind::kReduceScatter:
    case OpKind::kAlltoall:
    case OpKind::kCreateSet:
    case OpKind::kDestroySet: KOLO_CHECK(false);  // they have no payloads
  }
  return result;
}

void scale(std::span<std::uint32_t> words, double by) {
  if (by == 1.0) return;
  for (std::uint32_t& word : words) {
    word = std::bit_cast<std::uint32_t>(std::bit_cast<float>(word) * static_cast<float>(by));
  }
}

}  // namespace kolo::internal
