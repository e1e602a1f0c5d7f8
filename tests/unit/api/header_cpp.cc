// kolo.h and kolo.hpp in strict C++: they compile, and C++ types map to the right data types.
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "kolo/kolo.hpp"

static_assert(kolo::dtype<std::int8_t> == KOLO_INT8 && kolo::dtype<std::uint8_t> == KOLO_UINT8);
static_assert(kolo::dtype<std::int16_t> == KOLO_INT16 && kolo::dtype<std::uint16_t> == KOLO_UINT16);
static_assert(kolo::dtype<std::int32_t> == KOLO_INT32 && kolo::dtype<std::uint32_t> == KOLO_UINT32);
static_assert(kolo::dtype<std::int64_t> == KOLO_INT64 && kolo::dtype<std::uint64_t> == KOLO_UINT64);
static_assert(kolo::dtype<long> == KOLO_INT64 && kolo::dtype<unsigned long long> == KOLO_UINT64);
static_assert(kolo::dtype<float> == KOLO_FLOAT32 && kolo::dtype<const double> == KOLO_FLOAT64);
static_assert(kolo::dtype<bool> == KOLO_BOOL && kolo::dtype<std::byte> == KOLO_UINT8);
static_assert(kolo::dtype<kolo::float16> == KOLO_FLOAT16 && sizeof(kolo::float16) == 2);
static_assert(kolo::dtype<kolo::bfloat16> == KOLO_BFLOAT16 && sizeof(kolo::bfloat16) == 2);
#if defined(__FLT16_MANT_DIG__)
static_assert(kolo::dtype<_Float16> == KOLO_FLOAT16);
#endif

template <typename T>
constexpr bool is_move_only =
    std::is_nothrow_move_constructible_v<T> && !std::is_copy_constructible_v<T>;
static_assert(is_move_only<kolo::Context> && is_move_only<kolo::Request>);
static_assert(is_move_only<kolo::Config> && is_move_only<kolo::Group>);
static_assert(is_move_only<kolo::Ragged<float>>);

#if defined(__cpp_lib_span)
template <typename... Arguments>
concept can_allreduce = requires(kolo::Context context, Arguments&&... arguments) {
  context.allreduce(std::forward<Arguments>(arguments)..., kolo::Op::sum);
};
using floats = std::vector<float>;
static_assert(can_allreduce<floats&> && can_allreduce<std::span<float>> &&
              can_allreduce<float (&)[3]> && can_allreduce<const floats&, floats&> &&
              can_allreduce<std::span<const float>, floats&>);
// Nothing constant is written, no temporary outlived, no type changed.
static_assert(!can_allreduce<const floats&> && !can_allreduce<floats> &&
              !can_allreduce<floats, floats&> && !can_allreduce<std::vector<double>&, floats&>);
#endif

void kolo_header_cpp(kolo::Context& context, std::vector<float>& data);
void kolo_header_cpp(kolo::Context& context, std::vector<float>& data) {
  context.broadcast(data.data(), data.data(), data.size(), 0);
  context.allreduce(data.data(), data.data(), data.size(), kolo::Op::avg);
  kolo::Request request = context.barrier_async(kolo::Options().name("b"));
  kolo::Group group = context.group("g");
  group.end_async().wait();
  request.wait();
  const kolo::ProcessSet set = context.create_process_set({0});
  const kolo::Options within = kolo::Options().on(set).send_counts({1}).recv_counts({1});
  context.reduce_scatter(data.data(), data.data(), 1, kolo::Op::sum, within);
  context.alltoall(data.data(), data.data() + 1, 1, within);
  context.reduce_scatter_async(data.data(), data.data(), 1, kolo::Op::sum).wait();
  context.alltoall_async(data.data(), data.data() + 1, 1).wait();
  const kolo::Ragged<float> rows = context.allgather_ragged(data.data(), data.size());
  data.assign(rows.begin(), rows.end());
  context.alltoall_ragged_async(data.data(), 1, within).wait();
  if (context.join() == context.place(set)) context.destroy_process_set(set);
  const kolo::ShardSampler sampler(context, data.size(), 1, kolo::Tail::drop);
  static_cast<void>(sampler.shard(0));
  std::vector<float, kolo::Allocator<float>> shared(3, context.allocator<float>());
#if defined(__cpp_lib_span)
  context.allreduce(shared, kolo::Op::sum);
#endif
}
