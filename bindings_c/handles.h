// What stands behind a user's kolo_context, and the way every call goes through the C boundary.
//
// A kolo_context is a small shell that is never freed, so that a late call finds it closed. Each
// call is counted in and out; shutdown closes the shell and destroys the Context when the last
// call has left. guarded() turns whatever is thrown into a status. Safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "base/check.h"
#include "core/context.h"
#include "kolo/kolo.h"

struct kolo_context {
  // The highest bit says closed; the rest counts the calls that are inside.
  static constexpr std::uint64_t kClosed = std::uint64_t{1} << 63;

  std::atomic<std::uint64_t> state{0};
  std::uint32_t forks_before = 0;  // of this process's line, when made
  std::string identity;            // which rank of which job; empty when closed
  std::unique_ptr<kolo::internal::Context> context;
};

namespace kolo::internal {

// What this thread was told; each text lives until the next of its kind.
struct ThreadTexts {
  std::string error;
  const char* shown_error = "";
  std::string config_value;
  std::string info;
};
ThreadTexts& thread_texts();

// Keeps the error's text for kolo_last_error().
kolo_status report(const Status& status) noexcept;
kolo_status report_exception(std::exception_ptr thrown) noexcept;

template <typename Body>
kolo_status guarded(Body body) noexcept {
  try {
    return report(body());
  } catch (...) {
    return report_exception(std::current_exception());
  }
}

// A shell without a Context yet, for the rank and job that `config` means. INVALID_ARGUMENT if a
// live context of this process is that already.
Result<kolo_context*> reserve_shell(const Config& config);

// Puts a Context into its shell.
void open_shell(kolo_context& shell, std::unique_ptr<Context> context);

// Waits until every call has left, then destroys the Context.
void close_shell(kolo_context& shell);

// One call inside a context; keeps the Context alive while its status is OK.
class Call {
 public:
  Call(kolo_context* shell, const char* function);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call();
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  kolo_context* shell_;
  bool is_inside_ = false;
  Status status_;
};

// Runs body(Context&) as a counted call. A Bug inside breaks the context.
template <typename Body>
kolo_status with_context(kolo_context* shell, const char* function, Body body) noexcept {
  return guarded([&]() -> Status {
    const Call call(shell, function);
    if (!call.status()) return call.status();
    Context& context = *shell->context;
    try {
      return body(context);
    } catch (const Bug& bug) {
      (void)context.abort(std::string("internal error: ") + bug.what());
      throw;
    }
  });
}

}  // namespace kolo::internal
