// kolo for C++: move-only owners over kolo.h, header-only, C++17 (std::span where C++20 has it).
//
//     kolo::Context context;
//     std::vector<float> gradient(n), sum(n);
//     context.allreduce(gradient, kolo::Op::avg);                          // blocks, in place
//     context.allreduce(gradient, sum, kolo::Op::sum);                     // from one to another
//     kolo::Request done = context.allreduce_async(std::span(gradient).first(n / 2), kolo::Op::sum,
//                                                  kolo::Options().name("layer1.weight"));
//     done.wait();
//
// Vectors, arrays and spans are taken from C++20 on; pointers and a count always.
// Errors are exceptions of the class Error, with status and text, thrown by this header, never by
// the library. Functions that ask whether something is done return a bool.
// Ownership and blocking: a Context shuts down when destroyed, and must outlive its Requests. A
// Request that is still running when destroyed *waits*, because its buffers are kolo's until then:
// unwinding the stack must not free them early. detach() gives a Request up instead; the buffers
// must then stay until the operation has ended. A Group that is destroyed without end() is
// submitted and waited for; if an exception is under way, the context is aborted instead.
// Destructors swallow errors. Threads, names, counts and buffers are as in kolo.h.
#ifndef KOLO_KOLO_HPP_
#define KOLO_KOLO_HPP_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#if __cplusplus >= 202002L
#include <span>
#endif

#include "kolo/allocator.hpp"
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

enum class Op : std::int32_t {
  sum = KOLO_SUM,
  prod = KOLO_PROD,
  max = KOLO_MAX,
  min = KOLO_MIN,
  avg = KOLO_AVG
};

// Storage of two-byte floats for compilers without such types: the bits, no arithmetic.
struct float16 {
  std::uint16_t bits;
};
struct bfloat16 {
  std::uint16_t bits;
};

namespace detail {

template <typename T>
constexpr kolo_dtype integer_dtype() {
  static_assert(sizeof(T) <= 8, "kolo has no integers of more than 64 bits");
  constexpr bool is_signed = std::is_signed_v<T>;
  if (sizeof(T) == 1) return is_signed ? KOLO_INT8 : KOLO_UINT8;
  if (sizeof(T) == 2) return is_signed ? KOLO_INT16 : KOLO_UINT16;
  if (sizeof(T) == 4) return is_signed ? KOLO_INT32 : KOLO_UINT32;
  return is_signed ? KOLO_INT64 : KOLO_UINT64;
}

template <typename T>
struct always_false : std::false_type {};

template <typename T, typename = void>
struct dtype_of {
  static_assert(always_false<T>::value,
                "kolo has no data type for this C++ type; specialise kolo::dtype for it");
};
template <typename T>
struct dtype_of<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  static constexpr kolo_dtype value = integer_dtype<T>();
};
template <>
struct dtype_of<bool> {
  static_assert(sizeof(bool) == 1, "kolo's bool is one byte");
  static constexpr kolo_dtype value = KOLO_BOOL;
};
template <>
struct dtype_of<std::byte> {
  static constexpr kolo_dtype value = KOLO_UINT8;
};
template <>
struct dtype_of<float> {
  static constexpr kolo_dtype value = KOLO_FLOAT32;
};
template <>
struct dtype_of<double> {
  static constexpr kolo_dtype value = KOLO_FLOAT64;
};
template <>
struct dtype_of<float16> {
  static constexpr kolo_dtype value = KOLO_FLOAT16;
};
template <>
struct dtype_of<bfloat16> {
  static constexpr kolo_dtype value = KOLO_BFLOAT16;
};
#if defined(__FLT16_MANT_DIG__)
template <>
struct dtype_of<_Float16> {
  static constexpr kolo_dtype value = KOLO_FLOAT16;
};
#endif

inline std::int64_t milliseconds(std::chrono::milliseconds limit) { return limit.count(); }

#if defined(__cpp_lib_span)
// Exists for what std::span takes: a vector, an array or a span, but no temporary vector, because
// the operation may outlive it.
template <typename Range>
using ElementOf = typename decltype(std::span(std::declval<Range>()))::element_type;

template <typename Range>
concept Output = !std::is_const_v<ElementOf<Range>>;

// An input for the elements of `To`.
template <typename Range, typename To>
concept InputOf = std::is_same_v<std::remove_const_t<ElementOf<Range>>, ElementOf<To>>;
#endif

}  // namespace detail

// The data type that holds elements of T. A type of your own (another bfloat16, say) gets one by a
// specialisation: template <> inline constexpr kolo_dtype kolo::dtype<mine> = KOLO_BFLOAT16;
template <typename T>
inline constexpr kolo_dtype dtype = detail::dtype_of<std::remove_cv_t<T>>::value;

// Options for kolo_init(); see docs/options.md for the keys.
class Config {
 public:
  Config() { check(kolo_config_create(&config_)); }
  Config(Config&& other) noexcept : config_(std::exchange(other.config_, nullptr)) {}
  Config& operator=(Config&& other) noexcept {
    std::swap(config_, other.config_);
    return *this;
  }
  ~Config() { kolo_config_destroy(config_); }

  Config& set(const std::string& key, const std::string& value) {
    check(kolo_config_set(config_, key.c_str(), value.c_str()));
    return *this;
  }
  std::string get(const std::string& key) const {
    const char* value = nullptr;
    check(kolo_config_get(config_, key.c_str(), &value));
    return value;
  }
  Config& log_to(kolo_log_callback callback, void* user) {
    check(kolo_set_log_callback(config_, callback, user));
    return *this;
  }
  const kolo_config* handle() const noexcept { return config_; }

 private:
  kolo_config* config_ = nullptr;
};

// What may be said about one operation. Holds copies of name and shape.
class Options {
 public:
  Options& name(std::string value) {
    name_ = std::move(value);
    return *this;
  }
  Options& shape(std::vector<std::int64_t> dimensions) {
    shape_ = std::move(dimensions);
    has_shape_ = true;
    return *this;
  }
  Options& prescale(double value) {
    raw_.prescale = value;
    return *this;
  }
  Options& postscale(double value) {
    raw_.postscale = value;
    return *this;
  }
  Options& timeout(std::chrono::milliseconds value) {
    raw_.timeout_ms = detail::milliseconds(value);
    return *this;
  }
  Options& callback(kolo_callback function, void* user) {
    raw_.callback = function;
    raw_.user = user;
    return *this;
  }
  Options& persistent(bool value = true) {
    raw_.persistent = value ? 1 : 0;
    return *this;
  }
  // Points into this object: valid until it changes.
  kolo_options raw() const noexcept {
    static constexpr std::int64_t kScalar = 0;  // any address: a shape of no dimensions
    kolo_options result = raw_;
    result.name = name_.c_str();
    if (has_shape_) {
      result.shape = shape_.empty() ? &kScalar : shape_.data();
      result.ndim = static_cast<std::int32_t>(shape_.size());
    }
    return result;
  }

 private:
  kolo_options raw_ = KOLO_OPTIONS_INIT;
  std::string name_;
  std::vector<std::int64_t> shape_;
  bool has_shape_ = false;
};

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

// This thread's open group: collectives that the thread submits are one unit, until end().
class Group {
 public:
  explicit Group(kolo_context* context, const std::string& name = "")
      : context_(context), exceptions_(std::uncaught_exceptions()) {
    check(kolo_group_begin(context, name.c_str()));
  }
  Group(Group&& other) noexcept
      : context_(std::exchange(other.context_, nullptr)), exceptions_(other.exceptions_) {}
  Group& operator=(Group&&) = delete;
  ~Group() {
    if (context_ == nullptr) return;
    // Half a group must not be sent when its making was interrupted; but a group can only be closed
    // by submitting it, so the context is aborted then: the other ranks would wait for it.
    if (std::uncaught_exceptions() > exceptions_) {
      kolo_abort(context_, "an exception left a group half made");
    }
    kolo_group_end(context_, nullptr);
  }

  // Submits the group and waits for it.
  void end() { check(kolo_group_end(std::exchange(context_, nullptr), nullptr)); }
  // Submits the group.
  Request end_async() {
    kolo_context* const context = std::exchange(context_, nullptr);
    kolo_request request = KOLO_REQUEST_NULL;
    check(kolo_group_end(context, &request));
    return {context, request};
  }

 private:
  kolo_context* context_;
  int exceptions_;
};

// A rank's membership of a job. Blocking calls inside an open group join the group and return.
class Context {
 public:
  Context() { check(kolo_init(nullptr, &context_)); }
  explicit Context(const Config& config) { check(kolo_init(config.handle(), &context_)); }
  Context(Context&& other) noexcept : context_(std::exchange(other.context_, nullptr)) {}
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

  // Pointers and a count of elements; as in kolo.h. Those ending in _async return at once.
  template <typename T>
  void allreduce(const T* input, T* output, std::size_t count, Op op, const Options& options = {}) {
    const kolo_options raw = options.raw();
    check(kolo_allreduce(context_, input, output, count, dtype<T>, as_c(op), &raw, nullptr));
  }
  template <typename T>
  [[nodiscard]] Request allreduce_async(const T* input, T* output, std::size_t count, Op op,
                                        const Options& options = {}) {
    return make(options, [&](const kolo_options* raw, kolo_request* request) {
      return kolo_allreduce(context_, input, output, count, dtype<T>, as_c(op), raw, request);
    });
  }
  template <typename T>
  void allgather(const T* input, T* output, std::size_t count, const Options& options = {}) {
    const kolo_options raw = options.raw();
    check(kolo_allgather(context_, input, output, count, dtype<T>, &raw, nullptr));
  }
  template <typename T>
  [[nodiscard]] Request allgather_async(const T* input, T* output, std::size_t count,
                                        const Options& options = {}) {
    return make(options, [&](const kolo_options* raw, kolo_request* request) {
      return kolo_allgather(context_, input, output, count, dtype<T>, raw, request);
    });
  }
  template <typename T>
  void broadcast(const T* input, T* output, std::size_t count, int root,
                 const Options& options = {}) {
    const kolo_options raw = options.raw();
    check(kolo_broadcast(context_, input, output, count, dtype<T>, root, &raw, nullptr));
  }
  template <typename T>
  [[nodiscard]] Request broadcast_async(const T* input, T* output, std::size_t count, int root,
                                        const Options& options = {}) {
    return make(options, [&](const kolo_options* raw, kolo_request* request) {
      return kolo_broadcast(context_, input, output, count, dtype<T>, root, raw, request);
    });
  }
  void barrier(const Options& options = {}) {
    const kolo_options raw = options.raw();
    check(kolo_barrier(context_, &raw, nullptr));
  }
  [[nodiscard]] Request barrier_async(const Options& options = {}) {
    return make(options, [&](const kolo_options* raw, kolo_request* request) {
      return kolo_barrier(context_, raw, request);
    });
  }
  [[nodiscard]] Group group(const std::string& name = "") { return Group(context_, name); }

#if defined(__cpp_lib_span)
  // Vectors, arrays and spans: one is in place; of two, the sizes are checked.
  template <detail::Output Data>
  void allreduce(Data&& data, Op op, const Options& options = {}) {
    const std::span span(data);
    allreduce(span.data(), span.data(), span.size(), op, options);
  }
  template <typename In, detail::Output Out>
  requires detail::InputOf<In, Out>
  void allreduce(In&& input, Out&& output, Op op, const Options& options = {}) {
    const std::span from(input);
    const std::span to(output);
    require(to.size() == from.size(), "allreduce: input and output differ in size");
    allreduce(from.data(), to.data(), from.size(), op, options);
  }
  template <detail::Output Data>
  [[nodiscard]] Request allreduce_async(Data&& data, Op op, const Options& options = {}) {
    const std::span span(data);
    return allreduce_async(span.data(), span.data(), span.size(), op, options);
  }
  template <typename In, detail::Output Out>
  requires detail::InputOf<In, Out>
  [[nodiscard]] Request allreduce_async(In&& input, Out&& output, Op op,
                                        const Options& options = {}) {
    const std::span from(input);
    const std::span to(output);
    require(to.size() == from.size(), "allreduce: input and output differ in size");
    return allreduce_async(from.data(), to.data(), from.size(), op, options);
  }
  template <typename In, detail::Output Out>
  requires detail::InputOf<In, Out>
  void allgather(In&& input, Out&& output, const Options& options = {}) {
    const std::span from(input);
    const std::span to(output);
    require_gathered(from.size(), to.size());
    allgather(from.data(), to.data(), from.size(), options);
  }
  template <typename In, detail::Output Out>
  requires detail::InputOf<In, Out>
  [[nodiscard]] Request allgather_async(In&& input, Out&& output, const Options& options = {}) {
    const std::span from(input);
    const std::span to(output);
    require_gathered(from.size(), to.size());
    return allgather_async(from.data(), to.data(), from.size(), options);
  }
  template <detail::Output Data>
  void broadcast(Data&& data, int root, const Options& options = {}) {
    const std::span span(data);
    broadcast(span.data(), span.data(), span.size(), root, options);
  }
  template <detail::Output Data>
  [[nodiscard]] Request broadcast_async(Data&& data, int root, const Options& options = {}) {
    const std::span span(data);
    return broadcast_async(span.data(), span.data(), span.size(), root, options);
  }
#endif

 private:
  static kolo_op as_c(Op op) noexcept { return static_cast<kolo_op>(op); }
  static void require(bool condition, const char* text) {
    const char* const rest = "; nothing was submitted, and the other ranks do not know";
    if (!condition) throw Error(KOLO_INVALID_ARGUMENT, std::string(text) + rest);
  }
  void require_gathered(std::size_t input, std::size_t output) const {
    const int ranks = size();
    if (ranks < 0) return;  // shut down, as the call itself is about to say
    require(output == input * static_cast<std::size_t>(ranks),
            "allgather: the output must hold the input of every rank");
  }
  template <typename Submit>
  Request make(const Options& options, Submit submit) {
    const kolo_options raw = options.raw();
    kolo_request request = KOLO_REQUEST_NULL;
    check(submit(&raw, &request));
    return {context_, request, raw.persistent != 0};
  }

  kolo_context* context_ = nullptr;
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

#endif  // KOLO_KOLO_HPP_
