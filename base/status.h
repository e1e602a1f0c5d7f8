// Status and Result<T>: how every fallible call in kolo answers.
//
// A Status is a code plus one text that names what went wrong, who is concerned and the cure.
// Both types are plain values, safe to copy and to hand between threads; nothing is thrown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kolo::internal {

// The numbers are those of kolo_status in kolo.h and never change.
enum class StatusCode : std::int32_t {
  kOk = 0,
  kInvalidArgument = 1,
  kMismatch = 2,
  kDuplicateName = 3,
  kNotInitialized = 4,
  kWouldDeadlock = 5,
  kAborted = 6,
  kPeerLost = 7,
  kTimedOut = 8,
  kResource = 9,
  kInternal = 10,
  kUnsupported = 11,
  kInProgress = 12,  // a wait's own limit passed; the request is still alive
  kCudaError = 13,
  kNcclError = 14,
};
inline constexpr StatusCode kLastStatusCode = StatusCode::kNcclError;

// A short lower-case name, e.g. "peer lost". Never null; "unknown status" for other numbers.
const char* status_code_name(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string text) : code_(code), text_(std::move(text)) {}
  static Status ok() { return {}; }

  [[nodiscard]] bool is_ok() const { return code_ == StatusCode::kOk; }
  explicit operator bool() const { return is_ok(); }
  [[nodiscard]] StatusCode code() const { return code_; }
  [[nodiscard]] const std::string& text() const { return text_; }
  // "peer lost: rank 2 on host 0 ..." ; "ok" when fine.
  [[nodiscard]] std::string to_string() const;

  bool operator==(const Status&) const = default;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string text_;
};

inline Status invalid_argument(std::string text) {
  return {StatusCode::kInvalidArgument, std::move(text)};
}
inline Status peer_lost(std::string text) { return {StatusCode::kPeerLost, std::move(text)}; }
inline Status resource_error(std::string text) { return {StatusCode::kResource, std::move(text)}; }
inline Status timed_out(std::string text) { return {StatusCode::kTimedOut, std::move(text)}; }
inline Status aborted(std::string text) { return {StatusCode::kAborted, std::move(text)}; }

// Either a value or the Status that says why there is none (never an OK Status).
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    if (status_.is_ok()) status_ = {StatusCode::kInternal, "Result made from an OK status"};
  }

  [[nodiscard]] bool is_ok() const { return value_.has_value(); }
  explicit operator bool() const { return is_ok(); }
  [[nodiscard]] const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace kolo::internal

// Leave the enclosing function with the error of `expr`, if it has one.
#define KOLO_RETURN_IF_ERROR(expr)                                       \
  do {                                                                   \
    if (::kolo::internal::Status kolo_status_ = (expr); !kolo_status_) { \
      return kolo_status_;                                               \
    }                                                                    \
  } while (false)
