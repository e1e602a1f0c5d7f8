// kolo::Collectives, what a Context communicates by; included by kolo.hpp. C++17 or later; vectors,
// arrays and spans from C++20 on.
#ifndef KOLO_COLLECTIVES_HPP_
#define KOLO_COLLECTIVES_HPP_

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kolo/error.hpp"
#include "kolo/group.hpp"
#include "kolo/kolo.h"
#include "kolo/options.hpp"
#include "kolo/ragged.hpp"
#include "kolo/request.hpp"
#include "kolo/types.hpp"

namespace kolo {

// The base of Context. Contracts, shapes and counts are those of kolo.h; every function throws the
// call's error, and one that blocks the operation's too. Those ending in _async return at once;
// what they are given must stay until the operation is complete. Blocking calls inside an open
// group join the group and return.
class Collectives {
 public:
  // ---- Pointers and a count of elements --------------------------------------------------------
  template <typename T>
  void allreduce(const T* input, T* output, std::size_t count, Op op, const Options& options = {}) {
    const kolo_options raw = options.raw();
    check(kolo_allreduce(context_, input, output, count, dtype<T>, as_c(op), &raw, nullptr));
  }
  template <typename T>
  [[nodiscard]] Request allreduce_async(const T* input, T* output, std::size_t count, Op op,
                                        const Options& options = {}) {
    return make(options.raw(), [&](const kolo_options* raw, kolo_request* request) {
      return kolo_allreduce(context_, input, output, count, dtype<T>, as_c(op), raw, request);
    });
  }
  // input: a block of `count` for each rank, unless options.recv_counts() says otherwise.
  template <typename T>
  void reduce_scatter(const T* input, T* output, std::size_t count, Op op,
                      const Options& options = {}) {
    const kolo_options raw = counted(options);
    check(kolo_reduce_scatter(context_, input, output, count, dtype<T>, as_c(op), &raw, nullptr));
  }
  template <typename T>
  [[nodiscard]] Request reduce_scatter_async(const T* input, T* output, std::size_t count, Op op,
                                             const Options& options = {}) {
    return make(counted(options), [&](const kolo_options* raw, kolo_request* request) {
      return kolo_reduce_scatter(context_, input, output, count, dtype<T>, as_c(op), raw, request);
    });
  }
  template <typename T>
  void allgather(const T* input, T* output, std::size_t count, const Options& options = {}) {
    const kolo_options raw = counted(options);
    check(kolo_allgather(context_, input, output, count, dtype<T>, &raw, nullptr));
  }
  template <typename T>
  [[nodiscard]] Request allgather_async(const T* input, T* output, std::size_t count,
                                        const Options& options = {}) {
    return make(counted(options), [&](const kolo_options* raw, kolo_request* request) {
      return kolo_allgather(context_, input, output, count, dtype<T>, raw, request);
    });
  }
  // A block of `count` for each rank; with options.send_counts(), `count` is their sum.
  template <typename T>
  void alltoall(const T* input, T* output, std::size_t count, const Options& options = {}) {
    const kolo_options raw = counted(options);
    check(kolo_alltoall(context_, input, output, count, dtype<T>, &raw, nullptr));
  }
  template <typename T>
  [[nodiscard]] Request alltoall_async(const T* input, T* output, std::size_t count,
                                       const Options& options = {}) {
    return make(counted(options), [&](const kolo_options* raw, kolo_request* request) {
      return kolo_alltoall(context_, input, output, count, dtype<T>, raw, request);
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
    return make(options.raw(), [&](const kolo_options* raw, kolo_request* request) {
      return kolo_broadcast(context_, input, output, count, dtype<T>, root, raw, request);
    });
  }

  // ---- Outputs that the library allocates; not in a group --------------------------------------
  // Every rank gives as many elements as it likes; see Ragged.
  template <typename T>
  [[nodiscard]] Ragged<T> allgather_ragged_async(const T* input, std::size_t count,
                                                 const Options& options = {}) {
    return allocated<T>(counted(options), [&](const kolo_options* raw, kolo_request* request) {
      return kolo_allgather(context_, input, nullptr, count, dtype<T>, raw, request);
    });
  }
  template <typename T>
  [[nodiscard]] Ragged<T> allgather_ragged(const T* input, std::size_t count,
                                           const Options& options = {}) {
    return waited(allgather_ragged_async(input, count, options));
  }
  // Block s, of options.send_counts()[s] elements, goes to the set's rank s, which need not know;
  // `count` is their sum. Without send_counts every block has `count`.
  template <typename T>
  [[nodiscard]] Ragged<T> alltoall_ragged_async(const T* input, std::size_t count,
                                                const Options& options = {}) {
    return allocated<T>(counted(options), [&](const kolo_options* raw, kolo_request* request) {
      return kolo_alltoall(context_, input, nullptr, count, dtype<T>, raw, request);
    });
  }
  template <typename T>
  [[nodiscard]] Ragged<T> alltoall_ragged(const T* input, std::size_t count,
                                          const Options& options = {}) {
    return waited(alltoall_ragged_async(input, count, options));
  }

  // ---- Without data ----------------------------------------------------------------------------
  void barrier(const Options& options = {}) {
    const kolo_options raw = options.raw();
    check(kolo_barrier(context_, &raw, nullptr));
  }
  [[nodiscard]] Request barrier_async(const Options& options = {}) {
    return make(options.raw(), [&](const kolo_options* raw, kolo_request* request) {
      return kolo_barrier(context_, raw, request);
    });
  }
  // This rank has no more data: blocks until the others have none either, and returns the rank that
  // was the last, whose weights are the newest.
  int join(const Options& options = {}) {
    const kolo_options raw = options.raw();
    std::int32_t last_rank = -1;
    check(kolo_join(context_, &last_rank, &raw, nullptr));
    return last_rank;
  }
  // *last_rank (may be null) is written when it completes.
  [[nodiscard]] Request join_async(std::int32_t* last_rank, const Options& options = {}) {
    return make(options.raw(), [&](const kolo_options* raw, kolo_request* request) {
      return kolo_join(context_, last_rank, raw, request);
    });
  }
  [[nodiscard]] Group group(const std::string& name = "") { return Group(context_, name); }

#if defined(__cpp_lib_span)
  // ---- Vectors, arrays and spans: one is in place; of two, the sizes are checked ---------------
  template <detail::Output Data>
  void allreduce(Data&& data, Op op, const Options& options = {}) {
    const std::span span(data);
    allreduce(span.data(), span.data(), span.size(), op, options);
  }
  template <typename In, detail::Output Out>
  requires detail::InputOf<In, Out>
  void allreduce(In&& input, Out&& output, Op op, const Options& options = {}) {
    const auto [from, to] = alike("allreduce", std::span(input), std::span(output));
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
    const auto [from, to] = alike("allreduce", std::span(input), std::span(output));
    return allreduce_async(from.data(), to.data(), from.size(), op, options);
  }
  template <typename In, detail::Output Out>
  requires detail::InputOf<In, Out>
  void reduce_scatter(In&& input, Out&& output, Op op, const Options& options = {}) {
    const std::span to(output);
    const std::span from = whole("reduce_scatter: the input", std::span(input), to, options);
    reduce_scatter(from.data(), to.data(), to.size(), op, options);
  }
  template <typename In, detail::Output Out>
  requires detail::InputOf<In, Out>
  [[nodiscard]] Request reduce_scatter_async(In&& input, Out&& output, Op op,
                                             const Options& options = {}) {
    const std::span to(output);
    const std::span from = whole("reduce_scatter: the input", std::span(input), to, options);
    return reduce_scatter_async(from.data(), to.data(), to.size(), op, options);
  }
  template <typename In, detail::Output Out>
  requires detail::InputOf<In, Out>
  void allgather(In&& input, Out&& output, const Options& options = {}) {
    const std::span from(input);
    const std::span to = whole("allgather: the output", std::span(output), from, options);
    allgather(from.data(), to.data(), from.size(), options);
  }
  template <typename In, detail::Output Out>
  requires detail::InputOf<In, Out>
  [[nodiscard]] Request allgather_async(In&& input, Out&& output, const Options& options = {}) {
    const std::span from(input);
    const std::span to = whole("allgather: the output", std::span(output), from, options);
    return allgather_async(from.data(), to.data(), from.size(), options);
  }
  template <typename In, detail::Output Out>
  requires detail::InputOf<In, Out>
  void alltoall(In&& input, Out&& output, const Options& options = {}) {
    const std::span from(input);
    const std::span to(output);
    alltoall(from.data(), to.data(), exchanged(from.size(), to.size(), options), options);
  }
  template <typename In, detail::Output Out>
  requires detail::InputOf<In, Out>
  [[nodiscard]] Request alltoall_async(In&& input, Out&& output, const Options& options = {}) {
    const std::span from(input);
    const std::span to(output);
    const std::size_t count = exchanged(from.size(), to.size(), options);
    return alltoall_async(from.data(), to.data(), count, options);
  }
  template <detail::Input In>
  [[nodiscard]] auto allgather_ragged(In&& input, const Options& options = {}) {
    const std::span from(input);
    return allgather_ragged(from.data(), from.size(), options);
  }
  template <detail::Input In>
  [[nodiscard]] auto allgather_ragged_async(In&& input, const Options& options = {}) {
    const std::span from(input);
    return allgather_ragged_async(from.data(), from.size(), options);
  }
  template <detail::Input In>
  [[nodiscard]] auto alltoall_ragged(In&& input, const Options& options = {}) {
    const std::span from(input);
    return alltoall_ragged(from.data(), dealt(from.size(), options), options);
  }
  template <detail::Input In>
  [[nodiscard]] auto alltoall_ragged_async(In&& input, const Options& options = {}) {
    const std::span from(input);
    return alltoall_ragged_async(from.data(), dealt(from.size(), options), options);
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

 protected:
  Collectives() = default;
  explicit Collectives(kolo_context* context) noexcept : context_(context) {}
  ~Collectives() = default;

  template <typename Submit>
  Request make(const kolo_options& raw, Submit submit) {
    kolo_request request = KOLO_REQUEST_NULL;
    check(submit(&raw, &request));
    return {context_, request, raw.persistent != 0};
  }

  kolo_context* context_ = nullptr;

 private:
  static kolo_op as_c(Op op) noexcept { return static_cast<kolo_op>(op); }
  static void require(bool condition, const std::string& text) {
    const char* const rest = "; nothing was submitted, and the other ranks do not know";
    if (!condition) throw detail::refusal(text + rest);
  }
  // The number of ranks of a set; throws if it is none, or the context is shut down.
  std::size_t ranks_of(ProcessSet set) const {
    std::size_t count = 0;
    check(kolo_pset_ranks(context_, set.number, nullptr, 0, &count));
    return count;
  }
  // What kolo.h is given of options whose counts, if any, are one for each rank of the set: it
  // reads as many, whatever there are.
  kolo_options counted(const Options& options) const {
    require_one_for_each("send_counts", options.send_counts(), options.set());
    require_one_for_each("recv_counts", options.recv_counts(), options.set());
    return options.raw();
  }
  void require_one_for_each(const char* what, const std::vector<std::size_t>& counts,
                            ProcessSet set) const {
    if (counts.empty()) return;
    const std::size_t ranks = ranks_of(set);
    if (counts.size() == ranks) return;
    require(false, std::string(what) + " has " + std::to_string(counts.size()) +
                       " entries, but there are " + std::to_string(ranks) +
                       " ranks; give one for each");
  }
  template <typename T, typename Submit>
  Ragged<T> allocated(kolo_options raw, Submit submit) {
    raw.allocate = 1;
    const std::size_t blocks = ranks_of(ProcessSet{raw.pset});
    return Ragged<T>(make(raw, submit), blocks);
  }
  template <typename T>
  static Ragged<T> waited(Ragged<T> output) {
    output.wait();
    return output;
  }

#if defined(__cpp_lib_span)
  template <typename In, typename Out>
  static std::pair<In, Out> alike(const char* what, In input, Out output) {
    require(output.size() == input.size(), std::string(what) + ": input and output differ in size");
    return {input, output};
  }
  // `all`, if it has a block for every rank: of part.size(), or by options.recv_counts().
  template <typename All, typename Part>
  All whole(const char* what, All all, const Part& part, const Options& options) const {
    require_one_for_each("recv_counts", options.recv_counts(), options.set());
    const std::size_t expected = options.recv_counts().empty()
                                     ? ranks_of(options.set()) * part.size()
                                     : sum_of(options.recv_counts());
    require(all.size() == expected,
            std::string(what) + " must hold a block of every rank: " + std::to_string(expected) +
                " elements, not " + std::to_string(all.size()));
    return all;
  }
  // The count that kolo_alltoall() takes for an input of `sent` elements.
  std::size_t dealt(std::size_t sent, const Options& options) const {
    if (!options.send_counts().empty()) {
      require_one_for_each("send_counts", options.send_counts(), options.set());
      require(sent == sum_of(options.send_counts()),
              "alltoall: the input must hold the sum of send_counts");
      return sent;
    }
    const std::size_t ranks = ranks_of(options.set());
    require(sent % ranks == 0, "alltoall: the input must hold one block for each of " +
                                   std::to_string(ranks) + " ranks, all of one size, and has " +
                                   std::to_string(sent) + " elements; or give send_counts");
    return sent / ranks;
  }
  // The same, with an output of `received` elements.
  std::size_t exchanged(std::size_t sent, std::size_t received, const Options& options) const {
    const std::size_t count = dealt(sent, options);
    if (options.send_counts().empty()) {
      require(sent == received, "alltoall: input and output differ in size");
    } else {
      require_one_for_each("recv_counts", options.recv_counts(), options.set());
      require(received == sum_of(options.recv_counts()),
              "alltoall: the output must hold the sum of recv_counts");
    }
    return count;
  }
  static std::size_t sum_of(const std::vector<std::size_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  }
#endif
};

}  // namespace kolo

#endif  // KOLO_COLLECTIVES_HPP_
