#include "bindings_c/handles.h"

#include <pthread.h>

#include <cstddef>
#include <deque>
#include <mutex>
#include <new>
#include <utility>

namespace kolo::internal {
namespace {

// All shells ever made. The one mutable static of the library: it keeps them reachable (so that
// leak checkers are content) and is itself never destroyed, because calls may still arrive while
// the process runs its exit handlers.
struct Registry {
  std::mutex mutex;
  std::deque<kolo_context> shells;  // addresses stay; guarded by mutex
  std::atomic<std::uint32_t> forks{0};
};

Registry& registry();

// The mutex is held across fork(), so that the child does not inherit it locked by nobody, and sees
// only whole contexts.
Registry* make_registry() {
  auto* made = new Registry;
  ::pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                   [] {
                     Registry& all = registry();
                     for (const kolo_context& shell : all.shells) {
                       const bool is_parents = shell.forks_before == all.forks;
                       if (is_parents && shell.context) shell.context->close_in_child();
                     }
                     all.mutex.unlock();
                     all.forks.fetch_add(1, std::memory_order_relaxed);
                   });
  return made;
}

Registry& registry() {
  static Registry* const the_registry = make_registry();
  return *the_registry;
}

// Which rank of which job a configuration means: at most one live context of a process may be it.
std::string identity_of(const Config& config) {
  return "rank " + config.text("rank") + " of job \"" + config.text("job") + "\" at \"" +
         config.text("rendezvous") + "\"";
}

void release_identity(kolo_context& shell) {
  const std::lock_guard lock(registry().mutex);
  shell.identity.clear();
}

}  // namespace

// A thread may still call when its variables have ended, as the main thread does from the
// destructors of what is static. It then gets texts again, made in the same place.
ThreadTexts& thread_texts() {
  struct Place {
    alignas(ThreadTexts) std::byte memory[sizeof(ThreadTexts)];
    ThreadTexts* texts;
    bool has_ended;
  };
  struct Ender {
    Place& place;
    ~Ender() {
      place.has_ended = true;
      if (place.texts != nullptr) std::exchange(place.texts, nullptr)->~ThreadTexts();
    }
  };
  thread_local Place place{};  // without a destructor: there until the thread is gone
  thread_local const Ender ender{place};
  if (place.texts == nullptr) {
    place.texts = new (place.memory) ThreadTexts;
    if (place.has_ended) thread_local const Ender once_more{place};
  }
  return *place.texts;
}

kolo_status report(const Status& status) noexcept {
  if (status.is_ok()) return KOLO_OK;
  ThreadTexts& texts = thread_texts();
  try {
    texts.error = status.to_string();
    texts.shown_error = texts.error.c_str();
  } catch (...) {
    texts.shown_error = "an error, and no memory left to tell it";
  }
  return static_cast<kolo_status>(status.code());
}

kolo_status report_exception(std::exception_ptr thrown) noexcept {
  try {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::bad_alloc&) {
      return report({StatusCode::kResource, "out of memory"});
    } catch (const std::exception& error) {
      return report({StatusCode::kInternal,
                     std::string(error.what()) + "; this is a defect of kolo, please report it"});
    }
  } catch (...) {  // no memory for a text, or something that is no exception of anyone's
    thread_texts().shown_error = "internal error: an unknown exception, or no memory left";
    return KOLO_INTERNAL;
  }
}

Result<kolo_context*> reserve_shell(const Config& config) {
  const std::string identity = identity_of(config);
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const kolo_context& shell : all.shells) {
    if (shell.identity != identity) continue;
    const bool is_own = shell.forks_before == all.forks;
    return invalid_argument(
        "kolo_init: this process already is " + identity +
        (is_own ? "; use that context, shut it down first, or give another rank or job"
                : ", inherited by fork(); let the child exec, or fork before kolo_init()"));
  }
  kolo_context& shell = all.shells.emplace_back();
  shell.identity = identity;
  shell.forks_before = all.forks;
  return &shell;
}

void open_shell(kolo_context& shell, std::unique_ptr<Context> context) {
  const std::lock_guard lock(registry().mutex);
  shell.context = std::move(context);
}

void close_shell(kolo_context& shell) {
  std::uint64_t state = shell.state.fetch_or(kolo_context::kClosed) | kolo_context::kClosed;
  while (state != kolo_context::kClosed) {
    shell.state.wait(state);
    state = shell.state.load();
  }
  std::unique_ptr<Context> ending;
  {
    const std::lock_guard lock(registry().mutex);
    ending = std::move(shell.context);
  }
  ending.reset();
  release_identity(shell);
}

Call::Call(kolo_context* shell, const char* function) : shell_(shell) {
  if (shell == nullptr) {
    status_ = invalid_argument(std::string(function) +
                               ": the context is null; make one with kolo_init()");
    return;
  }
  if (shell->forks_before != registry().forks.load(std::memory_order_relaxed)) {
    status_ = {StatusCode::kNotInitialized,
               std::string(function) +
                   ": this process is a fork of the one that made the "
                   "context; fork before kolo_init(), or let the child exec"};
    return;
  }
  is_inside_ = true;
  if ((shell->state.fetch_add(1) & kolo_context::kClosed) != 0) {
    status_ = {StatusCode::kNotInitialized,
               std::string(function) +
                   ": the context has been shut down; make another with "
                   "kolo_init()"};
  }
}

Call::~Call() {
  if (!is_inside_) return;
  if ((shell_->state.fetch_sub(1) & kolo_context::kClosed) != 0) shell_->state.notify_all();
}

}  // namespace kolo::internal
