// kolo's worker: the C API as a trainer calls it, blocking and with names that are in the cache.
#include <kolo/kolo.h>

#include <string>

#include "bench/peers/measure.h"

namespace kolo::bench {
namespace {

void must(kolo_status status, const char* what) {
  if (status == KOLO_OK) return;
  die(std::string(what) + ": " + kolo_status_string(status) + ": " + kolo_last_error());
}

class KoloSystem final : public System {
 public:
  KoloSystem() {
    must(kolo_init(nullptr, &context_), "kolo_init");
    sum_options_.name = "bench.sum";
  }
  ~KoloSystem() override { must(kolo_shutdown(context_), "kolo_shutdown"); }
  KoloSystem(const KoloSystem&) = delete;
  KoloSystem& operator=(const KoloSystem&) = delete;

  [[nodiscard]] int rank() const override { return kolo_rank(context_); }
  [[nodiscard]] int size() const override { return kolo_size(context_); }

  void prepare(float* data, std::size_t count) override {
    data_ = data;
    count_ = count;
    name_ = "bench." + std::to_string(count);
    options_.name = name_.c_str();
  }

  void allreduce() override {
    must(kolo_allreduce(context_, data_, data_, count_, KOLO_FLOAT32, KOLO_SUM, &options_, nullptr),
         "kolo_allreduce");
  }

  double sum(double value) override {
    must(
        kolo_allreduce(context_, &value, &value, 1, KOLO_FLOAT64, KOLO_SUM, &sum_options_, nullptr),
        "kolo_allreduce");
    return value;
  }

 private:
  kolo_context* context_ = nullptr;
  float* data_ = nullptr;
  std::size_t count_ = 0;
  std::string name_;
  kolo_options options_ = KOLO_OPTIONS_INIT;
  kolo_options sum_options_ = KOLO_OPTIONS_INIT;
};

}  // namespace
}  // namespace kolo::bench

int main(int argc, char** argv) {
  const kolo::bench::Work work = kolo::bench::parse_work(argc, argv);
  kolo::bench::KoloSystem system;
  kolo::bench::run(work, system);
}
