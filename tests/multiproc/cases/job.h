// Job: one rank of a situation. Wraps the C API so that a case reads as its entry in the list of
// situations: what is submitted, and what must come back on this rank.
//
// A check that does not hold prints the reason and ends the process with kFailed at once; the
// launcher then ends the other ranks. Used by one thread unless said otherwise.
#pragma once

#include <kolo/kolo.h>

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::cases {

inline constexpr int kFailed = 90;

// Prints "rank R: <what>: <last error>" and ends the process.
[[noreturn]] void fail(const std::string& what);

#define KOLO_EXPECT(condition)                                               \
  ((condition) ? void()                                                      \
               : ::kolo::cases::fail(std::string(#condition) + " at line " + \
                                     std::to_string(__LINE__) + " of " + __FILE__))

// The status of the last call, as expected; and what its text must hold.
void expect_status(kolo_status got, kolo_status want, std::string_view what);
void expect_text(std::initializer_list<std::string_view> parts);
void expect_text_in(std::string_view text, std::initializer_list<std::string_view> parts);

class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  void expect_between(double least, double most, std::string_view what) const;

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void sleep_ms(int ms);
int repetitions(int full);  // a tenth, at least 20, without KOLO_TEST_LONG=1
bool long_tests();

// Of a process, as /proc tells it, such as 'T' (stopped) or 'Z' (ended); 0 if there is none.
char state_of(std::int32_t pid);

// FNV-1a over bytes; begins with, or goes on from, `seed`.
std::uint64_t hash_of(const void* memory, std::size_t bytes,
                      std::uint64_t seed = 0xcbf29ce484222325U);

// What this process holds, to be compared with what it holds later.
struct Holdings {
  static Holdings now();
  // Waits a moment, as a thread that has been joined is listed a little longer.
  static void expect_as(const Holdings& before);

  std::size_t descriptors = 0;
  std::size_t threads = 0;
  std::size_t resident_bytes = 0;
};

std::string road_of(kolo_context* context);  // as kolo_info() names it

template <typename T>
struct TypeOf;
template <>
struct TypeOf<std::int8_t> {
  static constexpr kolo_dtype value = KOLO_INT8;
};
template <>
struct TypeOf<std::uint8_t> {
  static constexpr kolo_dtype value = KOLO_UINT8;
};
template <>
struct TypeOf<std::int32_t> {
  static constexpr kolo_dtype value = KOLO_INT32;
};
template <>
struct TypeOf<std::uint32_t> {
  static constexpr kolo_dtype value = KOLO_UINT32;
};
template <>
struct TypeOf<std::int64_t> {
  static constexpr kolo_dtype value = KOLO_INT64;
};
template <>
struct TypeOf<std::uint64_t> {
  static constexpr kolo_dtype value = KOLO_UINT64;
};
template <>
struct TypeOf<float> {
  static constexpr kolo_dtype value = KOLO_FLOAT32;
};
template <>
struct TypeOf<double> {
  static constexpr kolo_dtype value = KOLO_FLOAT64;
};

// Options with a name, for a case that sets more.
kolo_options named(const char* name, std::int32_t pset = 0);

class Job {
 public:
  Job();  // kolo_init, which must succeed; over the road KOLO_TEST_ROAD, if that is set
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  [[nodiscard]] kolo_context* context() const { return context_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  void expect_size(int size) const;
  [[nodiscard]] std::vector<std::int32_t> pids() const;  // by rank; every rank asks

  // Submit and return the request; the call itself must succeed. In place.
  template <typename T>
  kolo_request submit(const char* name, std::vector<T>& values, kolo_op op = KOLO_SUM) const {
    return submit_raw(named(name), values.data(), values.size(), TypeOf<T>::value, op);
  }
  kolo_request submit_raw(const kolo_options& options, void* values, std::size_t count,
                          kolo_dtype dtype, kolo_op op = KOLO_SUM) const;
  kolo_request broadcast(const char* name, void* values, std::size_t count, kolo_dtype dtype,
                         int root) const;
  // All-reduce in place; must succeed.
  template <typename T>
  std::vector<T> reduce(const char* name, std::vector<T> values, kolo_op op = KOLO_SUM) const {
    finish(submit(name, values, op), KOLO_OK);
    return values;
  }
  // Waits, at most 30 s; the status must be `want`.
  void finish(kolo_request request, kolo_status want) const;
  // A second name for readability: a wait that must fail within 1 s.
  void finish_soon(kolo_request request, kolo_status want) const;

  // A new set of these ranks, made by a blocking call; and its end.
  [[nodiscard]] std::int32_t make_set(const std::vector<std::int32_t>& ranks,
                                      const char* name = nullptr) const;
  void end_set(std::int32_t pset) const;
  // Joins and waits; the rank that was last.
  std::int32_t join(std::int32_t pset = 0) const;

  // All-reduce SUM of rank+1 as int64 must give N(N+1)/2.
  void probe() const;
  // Before a rank dies, freezes or ends without a word. `ends`: whether this rank is the one; then
  // it returns when all others have come here, so that each has returned from all that it called
  // before, kolo_init included. On the others it may fail, by what that rank does next.
  void gather_before_an_end(bool ends) const;
  void shutdown() const;

 private:
  kolo_context* context_ = nullptr;
  int rank_ = 0;
  int size_ = 1;
};

// The situations; each returns the process's exit code. Those that end the process themselves, or
// begin with kolo_init, take no job.
struct Situation {
  const char* id;
  int (*run)();
};
std::vector<Situation> agreement_situations();
std::vector<Situation> number_situations();
std::vector<Situation> exact_situations();
std::vector<Situation> shape_situations();
std::vector<Situation> size_situations();
std::vector<Situation> resource_situations();
std::vector<Situation> ending_situations();
std::vector<Situation> argument_situations();
std::vector<Situation> request_situations();
std::vector<Situation> set_situations();
std::vector<Situation> join_situations();
std::vector<Situation> mixed_situations();
std::vector<Situation> wide_situations();
std::vector<Situation> failure_situations();
std::vector<Situation> lifecycle_situations();
std::vector<Situation> shutdown_situations();

}  // namespace kolo::cases
