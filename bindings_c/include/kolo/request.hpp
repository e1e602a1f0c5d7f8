// kolo::Request; included by kolo.hpp. C++17 or later.
#ifndef KOLO_REQUEST_HPP_
#define KOLO_REQUEST_HPP_

#include <chrono>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include "kolo/error.hpp"
#include "kolo/kolo.h"
#include "kolo/types.hpp"

namespace kolo {

// An operation in progress, or a persistent one. Empty when default-made, moved from or completed.
class Request {
 public:
  Request() = default;
  Request(kolo_context* context, kolo_request request, bool is_persistent = false) noexcept
      : context_(context), request_(request), is_persistent_(is_persistent) {}
  Request(Request&& other) noexcept { swap(other); }
  Request& operator=(Request&& other) noexcept {
    Request(std::move(other)).swap(*this);
    return *this;
  }
  ~Request() {
    if (request_ == KOLO_REQUEST_NULL) return;
    kolo_wait(context_, &request_, KOLO_FOREVER);
    kolo_request_free(context_, &request_);
  }

  // Blocks until complete; throws the operation's error.
  void wait() { check(kolo_wait(context_, &request_, KOLO_FOREVER)); }
  // The same for at most `limit`; false if it is still running then.
  bool wait_for(std::chrono::milliseconds limit) {
    const kolo_status status = kolo_wait(context_, &request_, detail::milliseconds(limit));
    if (status == KOLO_IN_PROGRESS) return false;
    check(status);
    return true;
  }
  // Makes `stream`, a cudaStream_t, wait for the result; the host waits for the launch only. The
  // request is still to be completed, or detached.
  void stream_wait(void* stream) {
    check(kolo_stream_wait(context_, request_, stream, KOLO_FOREVER));
  }
  // Never blocks; whether it is complete. Throws the operation's error.
  bool test() {
    std::int32_t done = 0;
    check(kolo_test(context_, &request_, &done));
    return done != 0;
  }
  // Starts a persistent request.
  void start() { check(kolo_start(context_, &request_, 1)); }
  // Gives the request up; its operation goes on, and its buffers must stay until it has ended.
  void detach() { check(kolo_request_free(context_, &request_)); }

  explicit operator bool() const noexcept { return request_ != KOLO_REQUEST_NULL; }
  bool is_persistent() const noexcept { return is_persistent_; }
  kolo_request handle() const noexcept { return request_; }
  kolo_context* context() const noexcept { return context_; }
  // Hands the bare request to the caller, who completes it.
  kolo_request release() noexcept { return std::exchange(request_, KOLO_REQUEST_NULL); }
  void swap(Request& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(request_, other.request_);
    std::swap(is_persistent_, other.is_persistent_);
  }

 private:
  kolo_context* context_ = nullptr;
  kolo_request request_ = KOLO_REQUEST_NULL;
  bool is_persistent_ = false;
};

// Completes all of `requests`, of one context; throws the first error in their order.
inline void wait_all(std::vector<Request>& requests) {
  std::exception_ptr first;
  for (Request& request : requests) {
    try {
      if (request) request.wait();
    } catch (const Error&) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace kolo

#endif  // KOLO_REQUEST_HPP_
