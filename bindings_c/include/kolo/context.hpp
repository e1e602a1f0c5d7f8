// kolo::Context; included by kolo.hpp. C++17 or later.
#ifndef KOLO_CONTEXT_HPP_
#define KOLO_CONTEXT_HPP_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kolo/allocator.hpp"
#include "kolo/collectives.hpp"
#include "kolo/config.hpp"
#include "kolo/error.hpp"
#include "kolo/kolo.h"
#include "kolo/options.hpp"
#include "kolo/request.hpp"
#include "kolo/types.hpp"

namespace kolo {

// A rank's membership of a job; what it communicates by is in its base, Collectives.
class Context : public Collectives {
 public:
  Context() { check(kolo_init(nullptr, &context_)); }
  explicit Context(const Config& config) { check(kolo_init(config.handle(), &context_)); }
  Context(Context&& other) noexcept : Collectives(std::exchange(other.context_, nullptr)) {}
  Context& operator=(Context&& other) noexcept {
    std::swap(context_, other.context_);
    return *this;
  }
  ~Context() {
    if (context_ != nullptr) kolo_shutdown(context_);  // a second one is refused, and no harm
  }

  // The handle is kept: later calls throw KOLO_NOT_INITIALIZED.
  void shutdown() { check(kolo_shutdown(context_)); }
  void abort(const std::string& reason) { check(kolo_abort(context_, reason.c_str())); }
  void health() const { check(kolo_health(context_)); }  // throws what broke the context
  std::string info() const {
    const char* json = nullptr;
    check(kolo_info(context_, &json));
    return json;
  }
  int rank() const noexcept { return kolo_rank(context_); }
  int size() const noexcept { return kolo_size(context_); }
  int local_rank() const noexcept { return kolo_local_rank(context_); }
  int local_size() const noexcept { return kolo_local_size(context_); }
  kolo_context* handle() const noexcept { return context_; }
  template <typename T>
  Allocator<T> allocator() const noexcept {
    return Allocator<T>(context_);
  }

  // A set of these ranks, in any order. All ranks of the job call it, with the same ranks, also
  // those outside. Blocks. The set lives until destroy_process_set() or shutdown().
  [[nodiscard]] ProcessSet create_process_set(const std::vector<std::int32_t>& ranks,
                                              const Options& options = {}) {
    const kolo_options raw = options.raw();
    ProcessSet set;
    check(kolo_pset_create(context_, ranks.data(), ranks.size(), &set.number, &raw, nullptr));
    return set;
  }
  // `set` is written before the request is complete, and must stay until then.
  [[nodiscard]] Request create_process_set_async(const std::vector<std::int32_t>& ranks,
                                                 ProcessSet& set, const Options& options = {}) {
    return make(options.raw(), [&](const kolo_options* raw, kolo_request* request) {
      return kolo_pset_create(context_, ranks.data(), ranks.size(), &set.number, raw, request);
    });
  }
  // All ranks of the job call it. Blocks.
  void destroy_process_set(ProcessSet set, const Options& options = {}) {
    const kolo_options raw = options.raw();
    check(kolo_pset_destroy(context_, set.number, &raw, nullptr));
  }
  [[nodiscard]] Request destroy_process_set_async(ProcessSet set, const Options& options = {}) {
    return make(options.raw(), [&](const kolo_options* raw, kolo_request* request) {
      return kolo_pset_destroy(context_, set.number, raw, request);
    });
  }
  // The set's ranks, ascending.
  std::vector<std::int32_t> ranks(ProcessSet set = {}) const {
    std::size_t count = 0;
    check(kolo_pset_ranks(context_, set.number, nullptr, 0, &count));
    std::vector<std::int32_t> found(count);
    check(kolo_pset_ranks(context_, set.number, found.data(), count, &count));
    return found;
  }
  // This rank's place among them, which is the place of its block in a result; -1 if outside.
  int place(ProcessSet set = {}) const {
    const std::vector<std::int32_t> members = ranks(set);
    const auto found = std::find(members.begin(), members.end(), rank());
    return found == members.end() ? -1 : static_cast<int>(found - members.begin());
  }
};

}  // namespace kolo

#endif  // KOLO_CONTEXT_HPP_
