#include "ops/select.h"

namespace kolo::internal {
namespace {

// Measured over loopback TCP with 2 and 4 ranks: below this two hops cost more than sending it all
// to everybody. More ranks send more copies, so the bound is on what a rank sends.
constexpr std::size_t kOneshotSentBytes = std::size_t{32} << 10;

}  // namespace

std::optional<AlgorithmChoice> parse_algorithm(std::string_view text) {
  if (text == "auto") return AlgorithmChoice::kAuto;
  if (text == "oneshot") return AlgorithmChoice::kOneshot;
  if (text == "direct") return AlgorithmChoice::kDirect;
  if (text == "ring") return AlgorithmChoice::kRing;
  return std::nullopt;
}

std::string_view algorithm_name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kOneshot: return "oneshot";
    case Algorithm::kDirect: return "direct";
    case Algorithm::kRing: return "ring";
  }
  return "unknown";
}

Algorithm select_allreduce(AlgorithmChoice choice, std::size_t total_bytes, int size) {
  switch (choice) {
    case AlgorithmChoice::kOneshot: return Algorithm::kOneshot;
    case AlgorithmChoice::kDirect: return Algorithm::kDirect;
    case AlgorithmChoice::kRing: return Algorithm::kRing;
    case AlgorithmChoice::kAuto: break;
  }
  const auto peers = static_cast<std::size_t>(size > 1 ? size - 1 : 1);
  return total_bytes <= kOneshotSentBytes / peers ? Algorithm::kOneshot : Algorithm::kDirect;
}

Algorithm select_by_rank(AlgorithmChoice choice) {
  return choice == AlgorithmChoice::kRing ? Algorithm::kRing : Algorithm::kDirect;
}

}  // namespace kolo::internal
