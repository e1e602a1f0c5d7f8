// Violation: a broken invariant of a simulated run. Thrown where it is seen, caught once per run.
#pragma once

#include <stdexcept>
#include <string>

namespace kolo::internal {

class Violation : public std::runtime_error {
 public:
  Violation(std::string invariant, const std::string& text)
      : std::runtime_error(text), invariant_(std::move(invariant)) {}
  [[nodiscard]] const std::string& invariant() const { return invariant_; }

 private:
  std::string invariant_;
};

// `text` is made only when it is needed.
template <typename MakeText>
void require(bool holds, const char* invariant, const MakeText& text) {
  if (!holds) throw Violation(invariant, text());
}

}  // namespace kolo::internal
