#include <array>
#include <atomic>
#include <cstdio>
#include <vector>

#include "bench/common/text.h"
#include "bench/gpu/systems.h"

namespace kolo::bench {
namespace {

constexpr std::size_t kInFlight = 64;  // sums whose requests are not completed yet

kolo_status submit(kolo_context* context, const Tensor& tensor, const kolo_options& options,
                   kolo_request* request) {
  return kolo_allreduce(context, tensor.input, tensor.output, tensor.count, KOLO_FLOAT32, KOLO_SUM,
                        &options, request);
}

class Kolo : public System {
 public:
  Kolo(const Job& job, const Device& device) : context_(job.context()), device_(device) {}

  void prepare(std::span<const Tensor> tensors) override {
    tensors_ = tensors;
    requests_.assign(tensors.size(), KOLO_REQUEST_NULL);
  }

  void step(cuda::StreamHandle stream) override {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      must(submit(context_, tensors_[i], options(tensors_[i].name, stream), &requests_[i]),
           "kolo_allreduce");
    }
    must(kolo_wait_all(context_, requests_.data(), requests_.size(), KOLO_FOREVER),
         "kolo_wait_all");
  }

  void finish(cuda::StreamHandle stream) override { device_.synchronize(stream); }

 protected:
  [[nodiscard]] kolo_options options(const std::string& name, cuda::StreamHandle stream) const {
    kolo_options options = KOLO_OPTIONS_INIT;
    options.name = name.c_str();
    options.device = device_.number();
    options.stream = stream;
    return options;
  }

  kolo_context* context_;
  const Device& device_;
  std::span<const Tensor> tensors_;
  std::vector<kolo_request> requests_;
};

class KoloWaits final : public Kolo {
 public:
  using Kolo::Kolo;
  [[nodiscard]] const char* name() const override { return "kolo"; }

  void prepare(std::span<const Tensor> tensors) override {
    Kolo::prepare(tensors);
    names_.clear();
    for (std::size_t i = 0; i < kInFlight; ++i) {
      names_.push_back(tensors[0].name + "." + std::to_string(i));
    }
    flying_.assign(kInFlight, KOLO_REQUEST_NULL);
    next_ = 0;
  }

  void make_room() override {
    next_ = (next_ + 1) % kInFlight;
    must(kolo_wait(context_, &flying_[next_], KOLO_FOREVER), "kolo_wait");
  }

  void sum(cuda::StreamHandle stream) override {
    kolo_request& request = flying_[next_];
    must(submit(context_, tensors_[0], options(names_[next_], stream), &request), "kolo_allreduce");
    must(kolo_stream_wait(context_, request, stream, KOLO_FOREVER), "kolo_stream_wait");
  }

  void finish(cuda::StreamHandle stream) override {
    Kolo::finish(stream);
    must(kolo_wait_all(context_, flying_.data(), flying_.size(), KOLO_FOREVER), "kolo_wait_all");
  }

 private:
  std::vector<std::string> names_;
  std::vector<kolo_request> flying_;
  std::size_t next_ = 0;
};

// The name of a call is taken until its result is there, which only a callback tells.
class KoloCall final : public Kolo {
 public:
  using Kolo::Kolo;
  [[nodiscard]] const char* name() const override { return "kolo-call"; }

  void prepare(std::span<const Tensor> tensors) override {
    Kolo::prepare(tensors);
    for (std::size_t i = 0; i < kInFlight; ++i) {
      names_[i] = tensors[0].name + "." + std::to_string(i);
    }
    next_ = 0;
  }

  void make_room() override {
    next_ = (next_ + 1) % kInFlight;
    flying_[next_].wait(1);
  }

  void sum(cuda::StreamHandle stream) override {
    kolo_options call = options(names_[next_], stream);
    flying_[next_].store(1);
    call.user = &flying_[next_];
    call.callback = [](kolo_status status, const char* text, void* user) {
      if (status != KOLO_OK) die(std::string("kolo_allreduce: ") + text);
      static_cast<std::atomic<int>*>(user)->store(0);
      static_cast<std::atomic<int>*>(user)->notify_one();
    };
    must(submit(context_, tensors_[0], call, nullptr), "kolo_allreduce");
  }

  void finish(cuda::StreamHandle stream) override {
    Kolo::finish(stream);
    for (const std::atomic<int>& one : flying_) one.wait(1);
  }

 private:
  std::array<std::string, kInFlight> names_;
  std::array<std::atomic<int>, kInFlight> flying_ = {};
  std::size_t next_ = 0;
};

}  // namespace

void must(kolo_status status, const char* what) {
  if (status != KOLO_OK) die(std::string(what) + ": " + kolo_last_error());
}

Job::Job() {
  kolo_config* config = nullptr;
  must(kolo_config_create(&config), "kolo_config_create");
  must(kolo_config_set(config, "log_level", "info"), "kolo_config_set");  // it says who is staged
  const auto log = [](kolo_log_level level, const char* line, void* user) {
    static_cast<Job*>(user)->note(line);
    if (level <= KOLO_LOG_WARNING) std::fprintf(stderr, "%s\n", line);
  };
  must(kolo_set_log_callback(config, log, this), "kolo_set_log_callback");
  must(kolo_init(config, &context_), "kolo_init");
  must(kolo_config_destroy(config), "kolo_config_destroy");
}

void Job::note(std::string_view line) {
  const std::string_view sign = "goes through host memory";
  const std::size_t at = line.find(sign);
  const std::size_t why = line.find(": ", at);
  if (at == std::string_view::npos || why == std::string_view::npos) return;
  const std::lock_guard lock(mutex_);
  why_staged_ = line.substr(why + 2);
}

std::string Job::road() const {
  const std::lock_guard lock(mutex_);
  return why_staged_.empty() ? "nccl" : "staged: " + why_staged_;
}

Job::~Job() { must(kolo_shutdown(context_), "kolo_shutdown"); }

void Job::barrier() const {
  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = "bench.barrier";
  must(kolo_barrier(context_, &options, nullptr), "kolo_barrier");
}

void Job::broadcast(void* bytes, std::size_t count) const {
  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = "bench.broadcast";
  options.device = KOLO_DEVICE_HOST;
  must(kolo_broadcast(context_, bytes, bytes, count, KOLO_UINT8, 0, &options, nullptr),
       "kolo_broadcast");
}

double Job::largest(double value) const {
  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = "bench.largest";
  options.device = KOLO_DEVICE_HOST;
  must(kolo_allreduce(context_, &value, &value, 1, KOLO_FLOAT64, KOLO_MAX, &options, nullptr),
       "kolo_allreduce");
  return value;
}

std::unique_ptr<System> make_kolo_waits(const Job& job, const Device& device) {
  return std::make_unique<KoloWaits>(job, device);
}

std::unique_ptr<System> make_kolo_call(const Job& job, const Device& device) {
  return std::make_unique<KoloCall>(job, device);
}

}  // namespace kolo::bench
