#include "ops/adasum.h"

#include <algorithm>
#include <bit>
#include <new>

#include "base/check.h"
#include "ops/collectives.h"
#include "ops/half.h"

namespace kolo::internal {
namespace {

// What is computed in one step: some 50 us.
constexpr std::size_t kElementsAtOnce = std::size_t{1} << 15;

int add_pairs(std::size_t first, std::size_t count, std::vector<AdasumPair>& pairs) {
  if (count == 1) return 0;
  const std::size_t left = std::bit_floor(count - 1);
  const int level =
      1 + std::max(add_pairs(first, left, pairs), add_pairs(first + left, count - left, pairs));
  pairs.push_back({first, first + left, level});
  return level;
}

template <typename T>
T load(const std::byte* from, std::size_t i) {
  T value;
  __builtin_memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void store(std::byte* to, std::size_t i, T value) {
  __builtin_memcpy(to + i * sizeof(T), &value, sizeof(T));
}

void lift(DataType dtype, const std::byte* from, std::byte* to, std::size_t count, double scale) {
  const auto single = static_cast<float>(scale);
  switch (dtype) {
    case DataType::kFloat16:
      for (std::size_t i = 0; i < count; ++i) {
        store(to, i, widen_f16(load<std::uint16_t>(from, i)) * single);
      }
      return;
    case DataType::kBfloat16:
      for (std::size_t i = 0; i < count; ++i) {
        store(to, i, widen_bf16(load<std::uint16_t>(from, i)) * single);
      }
      return;
    case DataType::kFloat32:
      for (std::size_t i = 0; i < count; ++i) store(to, i, load<float>(from, i) * single);
      return;
    default:
      for (std::size_t i = 0; i < count; ++i) store(to, i, load<double>(from, i) * scale);
  }
}

void round(DataType dtype, const std::byte* from, std::byte* to, std::size_t count, double scale) {
  const auto single = static_cast<float>(scale);
  switch (dtype) {
    case DataType::kFloat16:
      for (std::size_t i = 0; i < count; ++i) {
        store(to, i, narrow_f16(load<float>(from, i) * single));
      }
      return;
    case DataType::kBfloat16:
      for (std::size_t i = 0; i < count; ++i) {
        store(to, i, narrow_bf16(load<float>(from, i) * single));
      }
      return;
    default: lift(dtype, from, to, count, scale);
  }
}

// Lane i mod kLanes; so a part begins with lane 0 unless it is the first of its row.
template <typename Work, typename Products>
void multiply(const std::byte* x, const std::byte* y, std::size_t count, Products& sums) {
  constexpr std::size_t kLanes = Products::kLanes;
  const auto add = [&](std::size_t i, std::size_t lane) {
    const double a = load<Work>(x, i), b = load<Work>(y, i);
    sums.xx[lane] += a * a;
    sums.xy[lane] += a * b;
    sums.yy[lane] += b * b;
  };
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  }
  for (std::size_t lane = 0; i + lane < count; ++lane) add(i + lane, lane);
}

template <typename Work>
void combine(std::byte* x, const std::byte* y, std::size_t count, double left, double right) {
  for (std::size_t i = 0; i < count; ++i) {
    const double a = load<Work>(x, i), b = load<Work>(y, i);
    store(x, i, static_cast<Work>(left * a + right * b));
  }
}

double sum(std::span<const double> lanes) {
  double total = 0;
  for (double lane : lanes) total += lane;
  return total;
}

}  // namespace

std::vector<AdasumPair> adasum_pairs(std::size_t ranks) {
  std::vector<AdasumPair> pairs;
  add_pairs(0, ranks, pairs);
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const AdasumPair& a, const AdasumPair& b) { return a.level < b.level; });
  return pairs;
}

void Adasum::start(Collectives& collectives, std::uint32_t sequence, const Piece& piece,
                   DataType dtype) {
  KOLO_CHECK(can_reduce(dtype, ReduceOp::kAdasum));
  begin(collectives, sequence);
  piece_ = piece;
  dtype_ = dtype;
  element_bytes_ = element_bytes(dtype);
  work_bytes_ = std::max(element_bytes_, sizeof(float));
  stage_ = Stage::kExchange;
  position_ = 0;
  level_end_ = 0;
  try {
    reserve();
  } catch (const std::bad_alloc&) {
    fail(resource_error("no memory for the vectors of an adasum; free some, or reduce in parts"));
  }
}

void Adasum::reserve() {
  const auto n = static_cast<std::size_t>(collectives().size());
  if (sizes_.size() != n) pairs_ = adasum_pairs(n);
  sizes_.resize(n);
  for (std::size_t r = 0; r < n; ++r) {
    sizes_[r] = balanced_slice(piece_.count, n, r).count * element_bytes_;
  }
  slice_ = balanced_slice(piece_.count, n, static_cast<std::size_t>(collectives().rank()));
  equal_.assign(n, slice_.count * element_bytes_);
  work_.reserve(n * slice_.count * work_bytes_);
  if (work_bytes_ != element_bytes_) received_.reserve(n * slice_.count * element_bytes_);
}

void Adasum::step() {
  switch (stage_) {
    case Stage::kExchange: stage_ = Stage::kLift; return exchange();
    case Stage::kLift:
      if (lift_some()) next_level();
      return;
    case Stage::kMultiply:
      if (!multiply_some()) return;
      stage_ = Stage::kCombine;
      pair_ = level_begin_;
      return gather_products();
    case Stage::kCombine:
      if (combine_some()) next_level();
      return;
    case Stage::kRound:
      if (!round_some()) return;
      stage_ = Stage::kGather;
      return gather_result();
    case Stage::kGather: return complete();
  }
}

void Adasum::exchange() {
  std::byte* to = work_bytes_ == element_bytes_ ? work_.get() : received_.get();
  run(collectives().start_alltoall(sequence(), piece_.input, to, sizes_, equal_));
}

void Adasum::gather_products() {
  all_.resize(own_.size() * ranks());
  equal_.assign(ranks(), own_.size() * sizeof(double));
  run(collectives().start_allgather(sequence(), own_.data(), all_.data(), equal_));
}

void Adasum::gather_result() {
  auto* output = static_cast<std::byte*>(piece_.output);
  run(collectives().start_allgather(sequence(), output + slice_.begin * element_bytes_, output,
                                    sizes_));
}

void Adasum::next_level() {
  position_ = 0;
  level_begin_ = level_end_;
  if (level_begin_ == pairs_.size()) {
    stage_ = Stage::kRound;
    return;
  }
  while (level_end_ < pairs_.size() && pairs_[level_end_].level == pairs_[level_begin_].level) {
    ++level_end_;
  }
  stage_ = Stage::kMultiply;
  pair_ = level_begin_;
  products_ = {};
  own_.clear();
}

Range Adasum::next_part(std::size_t elements) const {
  return {position_, std::min(kElementsAtOnce, elements - position_)};
}

bool Adasum::lift_some() {
  const std::size_t elements = ranks() * slice_.count;
  const bool in_place = work_bytes_ == element_bytes_;
  if (in_place && piece_.prescale == 1.0) return true;
  const Range part = next_part(elements);
  const std::byte* from = in_place ? work_.get() : received_.get();
  lift(dtype_, from + part.begin * element_bytes_, work_.get() + part.begin * work_bytes_,
       part.count, piece_.prescale);
  position_ = part.end();
  return position_ == elements;
}

bool Adasum::multiply_some() {
  const Range part = next_part(slice_.count);
  const std::size_t offset = part.begin * work_bytes_;
  const std::byte* x = row(pairs_[pair_].left) + offset;
  const std::byte* y = row(pairs_[pair_].right) + offset;
  if (dtype_ == DataType::kFloat64) {
    multiply<double>(x, y, part.count, products_);
  } else {
    multiply<float>(x, y, part.count, products_);
  }
  position_ = part.end();
  if (position_ < slice_.count) return false;
  for (const auto& lanes : {products_.xx, products_.xy, products_.yy}) own_.push_back(sum(lanes));
  products_ = {};
  position_ = 0;
  return ++pair_ == level_end_;
}

Adasum::Coefficients Adasum::coefficients(std::size_t pair) const {
  std::array<double, 3> total{};
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    const double* products = &all_[rank * own_.size() + 3 * (pair - level_begin_)];
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += products[i];
  }
  const auto [xx, xy, yy] = total;
  return {.left = xx == 0 ? 1.0 : 1.0 - xy / (2 * xx),
          .right = yy == 0 ? 1.0 : 1.0 - xy / (2 * yy)};
}

bool Adasum::combine_some() {
  const Coefficients by = coefficients(pair_);
  const Range part = next_part(slice_.count);
  const std::size_t offset = part.begin * work_bytes_;
  std::byte* x = row(pairs_[pair_].left) + offset;
  const std::byte* y = row(pairs_[pair_].right) + offset;
  if (dtype_ == DataType::kFloat64) {
    combine<double>(x, y, part.count, by.left, by.right);
  } else {
    combine<float>(x, y, part.count, by.left, by.right);
  }
  position_ = part.end();
  if (position_ < slice_.count) return false;
  position_ = 0;
  return ++pair_ == level_end_;
}

bool Adasum::round_some() {
  const Range part = next_part(slice_.count);
  auto* to = static_cast<std::byte*>(piece_.output) + (slice_.begin + part.begin) * element_bytes_;
  if (part.count > 0) {
    round(dtype_, row(0) + part.begin * work_bytes_, to, part.count, piece_.postscale);
  }
  position_ = part.end();
  return position_ == slice_.count;
}

}  // namespace kolo::internal
