// kolo::Tensor, broadcast_parameters and GradientReducer; part of training.hpp. C++20.
#ifndef KOLO_GRADIENTS_HPP_
#define KOLO_GRADIENTS_HPP_

#include "kolo/types.hpp"

#if defined(__cpp_lib_span)
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kolo/context.hpp"
#include "kolo/error.hpp"
#include "kolo/kolo.h"
#include "kolo/options.hpp"
#include "kolo/request.hpp"

namespace kolo {

namespace detail {
constexpr bool is_integer(kolo_dtype type) noexcept {
  switch (type) {
    case KOLO_FLOAT16:
    case KOLO_BFLOAT16:
    case KOLO_FLOAT32:
    case KOLO_FLOAT64:
    case KOLO_FLOAT8_E4M3:
    case KOLO_FLOAT8_E5M2: return false;
    default: return true;
  }
}
}  // namespace detail

// A name and the elements that it stands for, of any data type. The elements are the caller's and
// must stay where they are.
struct Tensor {
  template <detail::Output Data>
  Tensor(std::string its_name, Data&& elements) : name(std::move(its_name)) {
    const std::span span(elements);
    data = span.data();
    count = span.size();
    type = dtype<detail::ElementOf<Data>>;
  }

  std::string name;
  void* data;
  std::size_t count;
  kolo_dtype type;
};

// Gives every rank of the set the root's elements, in place: one group, so one unit of
// communication. All ranks give tensors of the same names, counts and types, in any order. Blocks.
// Throws the call's or the operation's error; the weights are then as before, or undefined if the
// job is over.
inline void broadcast_parameters(Context& context, std::span<const Tensor> parameters, int root = 0,
                                 ProcessSet set = {}) {
  check(kolo_group_begin(context.handle(), "parameters"));
  // The group is closed whatever happens: one with a refused member is refused, on all ranks.
  std::exception_ptr refusal;
  for (const Tensor& parameter : parameters) {
    try {
      const Options options = Options().name("parameters/" + parameter.name).on(set);
      const kolo_options raw = options.raw();
      check(kolo_broadcast(context.handle(), parameter.data, parameter.data, parameter.count,
                           parameter.type, root, &raw, nullptr));
    } catch (...) {
      refusal = std::current_exception();
      break;
    }
  }
  const kolo_status status = kolo_group_end(context.handle(), nullptr);
  if (refusal) std::rethrow_exception(refusal);
  check(status);
}
inline void broadcast_parameters(Context& context, std::initializer_list<Tensor> parameters,
                                 int root = 0, ProcessSet set = {}) {
  broadcast_parameters(context, std::span(parameters.begin(), parameters.size()), root, set);
}

struct ReducerSettings {
  Op op = Op::avg;      // avg, sum or adasum
  int micro_steps = 1;  // backward passes whose gradients are added up before a reduction
  ProcessSet set = {};
};

// Reduces gradients over the ranks while the backward pass goes on, each as soon as it is there:
//
//     kolo::GradientReducer reducer(context, gradients, {.micro_steps = 4});   // once
//     // In the backward pass, when gradient i is done:
//     reducer.ready(i);
//     // After it; then all are reduced, in place, and the weights may be stepped:
//     reducer.wait();
//
// With micro_steps above 1 the caller adds up gradients in their buffers (and clears them after the
// step); only every micro_steps-th ready(i) submits i, and the result is divided by micro_steps, so
// that it is the mean over the micro-steps. The requests are persistent: a step allocates nothing.
// All ranks register tensors of the same names, counts and types. The reducer must go before the
// context does.
// Threads: ready() of different gradients may be called at once from any threads, in any order.
// wait() and the rest belong to one thread, when no ready() is under way.
class GradientReducer {
 public:
  // Throws the error of a tensor that cannot be reduced (a type without the operator, a bad name,
  // or one that is there twice; integers with micro_steps above 1).
  GradientReducer(Context& context, std::span<const Tensor> gradients,
                  ReducerSettings settings = {})
      : settings_(settings), gradients_(gradients.begin(), gradients.end()) {
    require_reducible();
    slots_ = std::make_unique<Slot[]>(gradients_.size());
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      slots_[i].request = prepare(context, gradients_[i], &slots_[i].result);
    }
  }
  GradientReducer(Context& context, std::initializer_list<Tensor> gradients,
                  ReducerSettings settings = {})
      : GradientReducer(context, std::span(gradients.begin(), gradients.size()), settings) {}

  // The backward pass has completed gradient i. Returns whether that submitted it: then its buffer
  // is kolo's until wait(). Never blocks. Throws KOLO_INVALID_ARGUMENT if there is no such
  // gradient, or it is submitted already, and what kolo_start() says.
  bool ready(std::size_t i) {
    Slot& slot = slot_of(i);
    if (slot.is_running) {
      throw detail::refusal("GradientReducer: gradient \"" + gradients_[i].name +
                            "\" is ready more than " + std::to_string(settings_.micro_steps) +
                            " times in a step; call wait() before the next one");
    }
    if (++slot.micro_step < settings_.micro_steps) return false;
    slot.start();
    return true;
  }

  // Ends the step: blocks until all gradients are reduced. Those that no ready() has submitted are
  // submitted now, as they are: they belong to a part of the model that this step did not use (or
  // the step had fewer micro-steps; it is divided by micro_steps all the same). Throws the first
  // error in their order, after all are complete.
  void wait() {
    std::exception_ptr first;
    const auto for_all = [&](auto&& act) {
      for (std::size_t i = 0; i < gradients_.size(); ++i) {
        try {
          act(slots_[i]);
        } catch (const Error&) {
          if (!first) first = std::current_exception();
        }
      }
    };
    for_all([](Slot& slot) {
      if (!slot.is_running) slot.start();
    });
    for_all([](Slot& slot) { slot.finish(); });
    if (first) std::rethrow_exception(first);
  }
  // The same for gradient i alone, to step its weights while others are under way. wait() is still
  // due.
  void wait(std::size_t i) {
    Slot& slot = slot_of(i);
    if (!slot.is_running) slot.start();
    slot.wait();
  }

  // Of the last step, after its wait(): the NaNs and infinities in all gradients, for a LossScaler;
  // the same on all ranks.
  std::int64_t nonfinite() const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < gradients_.size(); ++i) sum += slots_[i].result.nonfinite;
    return sum;
  }
  // Likewise how many ranks took part: fewer than the set's when some have joined. 0 without
  // gradients.
  int participants() const { return gradients_.empty() ? 0 : slots_[0].result.participants; }
  std::size_t size() const noexcept { return gradients_.size(); }

 private:
  struct Slot {
    void start() {
      micro_step = 0;
      request.start();
      is_running = true;
    }
    void wait() { request.wait(); }
    void finish() {
      if (!is_running) return;
      is_running = false;
      request.wait();
    }

    kolo_result result = {};
    std::atomic<int> micro_step = 0;
    std::atomic<bool> is_running = false;  // from its start to the step's wait()
    Request request;  // last: it waits when destroyed, and its operation writes the result
  };

  // Before anything is submitted: the others must not wait for half a model.
  void require_reducible() const {
    const std::string steps = std::to_string(settings_.micro_steps);
    if (settings_.micro_steps < 1) {
      throw detail::refusal("GradientReducer: micro_steps is " + steps + "; give 1 or more");
    }
    std::set<std::string_view> names;
    for (const Tensor& tensor : gradients_) {
      const std::string who = "GradientReducer: gradient \"" + tensor.name + "\"";
      if (!names.insert(tensor.name).second) {
        throw detail::refusal(who + " is there twice; give every gradient a name of its own");
      }
      if (settings_.micro_steps > 1 && detail::is_integer(tensor.type)) {
        throw detail::refusal(who + " holds integers, which cannot be divided by micro_steps, " +
                              steps +
                              "; give it to a reducer with micro_steps = 1, or make it float");
      }
    }
  }
  Request prepare(Context& context, const Tensor& tensor, kolo_result* result) const {
    const Options options = Options()
                                .name("gradients/" + tensor.name)
                                .prescale(1.0 / settings_.micro_steps)
                                .on(settings_.set)
                                .result(result)
                                .persistent();
    const kolo_options raw = options.raw();
    kolo_request request = KOLO_REQUEST_NULL;
    check(kolo_allreduce(context.handle(), tensor.data, tensor.data, tensor.count, tensor.type,
                         static_cast<kolo_op>(settings_.op), &raw, &request));
    return {context.handle(), request, /*is_persistent=*/true};
  }
  Slot& slot_of(std::size_t i) {
    if (i < gradients_.size()) return slots_[i];
    throw detail::refusal("GradientReducer: there is no gradient " + std::to_string(i) + ", only " +
                          std::to_string(gradients_.size()));
  }

  ReducerSettings settings_;
  std::vector<Tensor> gradients_;
  std::unique_ptr<Slot[]> slots_;
};

}  // namespace kolo
#endif  // defined(__cpp_lib_span)

#endif  // KOLO_GRADIENTS_HPP_
