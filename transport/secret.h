// Secret: a text that is wiped wherever it was held. For the job's secret. A plain value.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace kolo::internal {

// Overwrites the bytes, in a way that no compiler takes out. The text is empty then.
void wipe(std::string& text) noexcept;
void wipe(std::span<char> bytes) noexcept;

class Secret {
 public:
  Secret() = default;
  Secret(std::string_view text) : text_(text) {}  // NOLINT: is one, for callers
  Secret(std::string text) : text_(std::string_view(text)) { wipe(text); }  // NOLINT
  Secret(const char* text) : text_(text) {}                                 // NOLINT
  Secret(const Secret&) = default;
  Secret(Secret&& other) noexcept : text_(std::move(other.text_)) { wipe(other.text_); }
  Secret& operator=(Secret other) noexcept {
    wipe(text_);  // swapping short texts leaves the end of the longer one
    text_.swap(other.text_);
    return *this;
  }
  ~Secret() { wipe(text_); }

  operator std::string_view() const { return text_; }  // NOLINT: never longer than the Secret
  [[nodiscard]] std::size_t size() const { return text_.size(); }
  [[nodiscard]] bool empty() const { return text_.empty(); }
  friend bool operator==(const Secret& a, const Secret& b) { return a.text_ == b.text_; }

 private:
  std::string text_;
};

}  // namespace kolo::internal
