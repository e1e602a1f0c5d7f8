// Gloo's worker: the ring of its newer interface, over TCP on loopback.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <exception>
#include <memory>
#include <optional>

#include "bench/peers/measure.h"

namespace kolo::bench {
namespace {

std::shared_ptr<gloo::Context> connect(const Work& work) {
  gloo::rendezvous::FileStore store(work.meeting);
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice("127.0.0.1");
  auto context = std::make_shared<gloo::rendezvous::Context>(work.rank, work.size);
  context->connectFullMesh(store, device);
  return context;
}

class GlooSystem final : public System {
 public:
  explicit GlooSystem(const Work& work) : context_(connect(work)) {
    set_up<double>(sum_options_.emplace(context_), &sum_, 1, 1);
  }

  [[nodiscard]] int rank() const override { return context_->rank; }
  [[nodiscard]] int size() const override { return context_->size; }

  void prepare(float* data, std::size_t count) override {
    set_up<float>(options_.emplace(context_), data, count, 2);
  }

  void allreduce() override { gloo::allreduce(*options_); }

  double sum(double value) override {
    sum_ = value;
    gloo::allreduce(*sum_options_);
    return sum_;
  }

 private:
  // An output without an input is reduced in place.
  template <typename T>
  static void set_up(gloo::AllreduceOptions& options, T* data, std::size_t count,
                     std::uint32_t tag) {
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(data, count);
    void (*add)(void*, const void*, const void*, std::size_t) = &gloo::sum<T>;
    options.setReduceFunction(add);
    options.setTag(tag);
  }

  std::shared_ptr<gloo::Context> context_;
  double sum_ = 0;
  std::optional<gloo::AllreduceOptions> options_;
  std::optional<gloo::AllreduceOptions> sum_options_;
};

}  // namespace
}  // namespace kolo::bench

int main(int argc, char** argv) {
  const kolo::bench::Work work = kolo::bench::parse_work(argc, argv);
  try {
    kolo::bench::GlooSystem system(work);
    kolo::bench::run(work, system);
  } catch (const std::exception& error) {
    kolo::bench::die(error.what());
  }
}
