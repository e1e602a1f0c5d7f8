// Membership: the generation a rank lives in, who has left it cleanly, who is lost, and what broke
// it. Pure state. A frame of another generation is not of this membership and must not act.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "base/status.h"

namespace kolo::internal {

class Membership {
 public:
  explicit Membership(std::uint64_t generation) : generation_(generation) {}

  [[nodiscard]] std::uint64_t generation() const { return generation_; }
  [[nodiscard]] bool accepts(std::uint64_t generation) const { return generation == generation_; }

  // The first cause stays; later ones are noise of the same accident. True if this is the first.
  bool break_with(const Status& cause) {
    if (!broken_.is_ok()) return false;
    broken_ = cause;
    return true;
  }
  [[nodiscard]] const Status& broken() const { return broken_; }

  // True if this is news.
  bool leave(int rank) { return left_.insert(rank).second; }
  [[nodiscard]] bool has_left(int rank) const { return left_.contains(rank); }
  [[nodiscard]] const std::set<int>& left() const { return left_; }

  // Why a rank is lost. One that has taken leave may still be lost before it has done its part.
  struct Loss {
    int rank = 0;
    Status cause;
  };
  // True if this is news.
  bool lose(int rank, const Status& cause) {
    if (is_lost(rank)) return false;
    lost_.push_back({rank, cause});
    return true;
  }
  [[nodiscard]] bool is_lost(int rank) const {
    return std::any_of(lost_.begin(), lost_.end(),
                       [rank](const Loss& loss) { return loss.rank == rank; });
  }
  // Lost, or has left: it follows nothing any more.
  [[nodiscard]] bool is_gone(int rank) const { return is_lost(rank) || has_left(rank); }
  [[nodiscard]] const std::vector<Loss>& lost() const { return lost_; }  // in the order of the news

 private:
  std::uint64_t generation_;
  Status broken_;
  std::set<int> left_;
  std::vector<Loss> lost_;
};

}  // namespace kolo::internal
