// kolo::Options; included by kolo.hpp. C++17 or later.
#ifndef KOLO_OPTIONS_HPP_
#define KOLO_OPTIONS_HPP_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kolo/kolo.h"
#include "kolo/types.hpp"

namespace kolo {

// What may be said about one operation. Holds copies of name, shape and counts.
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
  // Among the ranks of `set` alone.
  Options& on(ProcessSet set) {
    raw_.pset = set.number;
    return *this;
  }
  // [ranks of the set] elements by rank, in rank order; see the collectives in kolo.h.
  Options& send_counts(std::vector<std::size_t> by_rank) {
    send_counts_ = std::move(by_rank);
    return *this;
  }
  Options& recv_counts(std::vector<std::size_t> by_rank) {
    recv_counts_ = std::move(by_rank);
    return *this;
  }
  // Written when the operation completes without an error; must stay until then.
  Options& result(kolo_result* told) {
    raw_.result = told;
    return *this;
  }
  // Where the buffers lie: the number of a CUDA device, or KOLO_DEVICE_HOST.
  Options& device(std::int32_t number) {
    raw_.device = number;
    return *this;
  }
  // The cudaStream_t on which the work that makes the input is queued.
  Options& stream(void* value) {
    raw_.stream = value;
    return *this;
  }
  ProcessSet set() const noexcept { return {raw_.pset}; }
  const std::vector<std::size_t>& send_counts() const noexcept { return send_counts_; }
  const std::vector<std::size_t>& recv_counts() const noexcept { return recv_counts_; }
  // Points into this object: valid until it changes.
  kolo_options raw() const noexcept {
    static constexpr std::int64_t kScalar = 0;  // any address: a shape of no dimensions
    kolo_options made = raw_;
    made.name = name_.empty() ? nullptr : name_.c_str();
    if (has_shape_) {
      made.shape = shape_.empty() ? &kScalar : shape_.data();
      made.ndim = static_cast<std::int32_t>(shape_.size());
    }
    if (!send_counts_.empty()) made.send_counts = send_counts_.data();
    if (!recv_counts_.empty()) made.recv_counts = recv_counts_.data();
    return made;
  }

 private:
  kolo_options raw_ = KOLO_OPTIONS_INIT;
  std::string name_;
  std::vector<std::int64_t> shape_;
  std::vector<std::size_t> send_counts_;
  std::vector<std::size_t> recv_counts_;
  bool has_shape_ = false;
};

}  // namespace kolo

#endif  // KOLO_OPTIONS_HPP_
