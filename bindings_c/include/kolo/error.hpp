// kolo::Error, which this C++ layer throws; included by kolo.hpp. C++17 or later.
#ifndef KOLO_ERROR_HPP_
#define KOLO_ERROR_HPP_

#include <stdexcept>
#include <string>

#include "kolo/kolo.h"

namespace kolo {

class Error : public std::runtime_error {
 public:
  Error(kolo_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  kolo_status status() const noexcept { return status_; }

 private:
  kolo_status status_;
};

// Throws unless `status` is KOLO_OK. For the result of a kolo_ function just called by this thread.
inline void check(kolo_status status) {
  if (status != KOLO_OK) throw Error(status, kolo_last_error());
}

namespace detail {

// Of a call that this layer refuses by itself; its text begins as kolo_last_error()'s does.
inline Error refusal(const std::string& text) {
  const kolo_status status = KOLO_INVALID_ARGUMENT;
  return {status, std::string(kolo_status_string(status)) + ": " + text};
}

}  // namespace detail
}  // namespace kolo

#endif  // KOLO_ERROR_HPP_
