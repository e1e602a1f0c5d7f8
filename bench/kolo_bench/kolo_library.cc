#include "bench/kolo_bench/kolo_library.h"

#include <kolo/kolo.h>

#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/common/text.h"

namespace kolo::bench {
namespace {

void must(kolo_status status, const char* what) {
  if (status == KOLO_OK) return;
  die(std::string(what) + ": " + kolo_last_error());
}

class KoloLibrary final : public Library {
 public:
  explicit KoloLibrary(Memory memory) : memory_(memory) {
    must(kolo_init(nullptr, &context_), "kolo_init");
    barrier_options_.name = "bench.barrier";
    largest_options_.name = "bench.largest";
    sum_options_.name = "bench.sum";
  }
  ~KoloLibrary() override {
    free_persistent();
    must(kolo_shutdown(context_), "kolo_shutdown");
  }
  KoloLibrary(const KoloLibrary&) = delete;
  KoloLibrary& operator=(const KoloLibrary&) = delete;

  [[nodiscard]] int rank() const override { return kolo_rank(context_); }
  [[nodiscard]] int size() const override { return kolo_size(context_); }

  [[nodiscard]] Facts facts() const override {
    const nlohmann::json all = info();
    const std::set<nlohmann::json> hosts(all.at("hosts").begin(), all.at("hosts").end());
    return {"kolo", kolo_version(), all.at("road"), static_cast<int>(hosts.size()),
            memory_ == Memory::kKolo ? "kolo" : "malloc"};
  }

  [[nodiscard]] bool can_reduce(kolo_dtype dtype, kolo_op op) const override {
    return bench::can_reduce(dtype, op);
  }

  void prepare(const Call& call) override {
    call_ = call;
    options_.name = call_.name.c_str();
  }
  void run() override { submit(call_, options_, nullptr); }

  void prepare_step(const std::vector<Call>& calls, bool persistent) override {
    free_persistent();
    calls_ = calls;
    requests_.assign(calls.size(), KOLO_REQUEST_NULL);
    call_options_.assign(calls.size(), KOLO_OPTIONS_INIT);
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      call_options_[i].name = calls_[i].name.c_str();
      call_options_[i].persistent = persistent ? 1 : 0;
      if (!persistent) continue;
      persistent_.push_back(KOLO_REQUEST_NULL);
      submit(calls_[i], call_options_[i], &persistent_[i]);
    }
  }
  void set_order(const std::vector<std::size_t>& order) override {
    order_ = order;
    if (persistent_.empty()) return;
    for (std::size_t k = 0; k < order.size(); ++k) requests_[k] = persistent_[order[k]];
  }
  void step() override {
    if (persistent_.empty()) {
      for (std::size_t k = 0; k < order_.size(); ++k) {
        submit(calls_[order_[k]], call_options_[order_[k]], &requests_[k]);
      }
    } else {
      must(kolo_start(context_, requests_.data(), requests_.size()), "kolo_start");
    }
    must(kolo_wait_all(context_, requests_.data(), requests_.size(), KOLO_FOREVER),
         "kolo_wait_all");
  }

  void barrier() override {
    must(kolo_barrier(context_, &barrier_options_, nullptr), "kolo_barrier");
  }
  void largest(std::vector<double>& values) override {
    const std::string name = "bench.largest." + std::to_string(values.size());
    largest_options_.name = name.c_str();
    must(kolo_allreduce(context_, values.data(), values.data(), values.size(), KOLO_FLOAT64,
                        KOLO_MAX, &largest_options_, nullptr),
         "kolo_allreduce");
  }
  double sum(double value) override {
    must(
        kolo_allreduce(context_, &value, &value, 1, KOLO_FLOAT64, KOLO_SUM, &sum_options_, nullptr),
        "kolo_allreduce");
    return value;
  }

  void* allocate(std::size_t bytes) override {
    if (memory_ == Memory::kMalloc) return allocate_plain(bytes);
    void* memory = nullptr;
    must(kolo_alloc(context_, bytes, &memory), "kolo_alloc");
    std::memset(memory, 0, bytes);  // maps it
    return memory;
  }
  void release(void* memory) override {
    if (memory_ == Memory::kMalloc) {
      std::free(memory);
    } else {
      must(kolo_free(context_, memory), "kolo_free");
    }
  }

  std::map<std::string, double> counters() override {
    std::map<std::string, double> counted;
    const nlohmann::json all = info();
    if (!all.contains("counters")) return counted;
    for (const auto& [name, value] : all.at("counters").items()) {
      if (value.is_number()) counted[name] = value.get<double>();
    }
    return counted;
  }

 private:
  [[nodiscard]] nlohmann::json info() const {
    const char* text = nullptr;
    must(kolo_info(context_, &text), "kolo_info");
    return nlohmann::json::parse(text);
  }

  void submit(const Call& call, const kolo_options& options, kolo_request* request) {
    switch (call.collective) {
      case Collective::kAllreduce:
        return must(kolo_allreduce(context_, call.input, call.output, call.count, call.dtype,
                                   call.op, &options, request),
                    "kolo_allreduce");
      case Collective::kReduceScatter:
        return must(kolo_reduce_scatter(context_, call.input, call.output, call.count, call.dtype,
                                        call.op, &options, request),
                    "kolo_reduce_scatter");
      case Collective::kAllgather:
        return must(kolo_allgather(context_, call.input, call.output, call.count, call.dtype,
                                   &options, request),
                    "kolo_allgather");
      case Collective::kAlltoall:
        return must(kolo_alltoall(context_, call.input, call.output, call.count, call.dtype,
                                  &options, request),
                    "kolo_alltoall");
      case Collective::kBroadcast:
        return must(kolo_broadcast(context_, call.input, call.output, call.count, call.dtype,
                                   call.root, &options, request),
                    "kolo_broadcast");
      case Collective::kBarrier:
        return must(kolo_barrier(context_, &options, request), "kolo_barrier");
    }
  }

  void free_persistent() {
    for (kolo_request& request : persistent_) kolo_request_free(context_, &request);
    persistent_.clear();
  }

  Memory memory_;
  kolo_context* context_ = nullptr;
  Call call_;
  kolo_options options_ = KOLO_OPTIONS_INIT;
  kolo_options barrier_options_ = KOLO_OPTIONS_INIT;
  kolo_options largest_options_ = KOLO_OPTIONS_INIT;
  kolo_options sum_options_ = KOLO_OPTIONS_INIT;
  std::vector<Call> calls_;
  std::vector<kolo_options> call_options_;
  std::vector<std::size_t> order_;
  std::vector<kolo_request> persistent_;  // by call; empty unless steps are persistent
  std::vector<kolo_request> requests_;    // of a step, in its order
};

}  // namespace

std::unique_ptr<Library> make_kolo_library(Memory memory) {
  return std::make_unique<KoloLibrary>(memory);
}

}  // namespace kolo::bench
