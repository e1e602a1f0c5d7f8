#include "bench/kolo_bench/measure.h"

#include <algorithm>
#include <cstring>

#include "bench/common/statistics.h"
#include "bench/common/usage.h"
#include "bench/kolo_bench/call_case.h"
#include "bench/kolo_bench/timing.h"

namespace kolo::bench {
namespace {

// All pairs of type and operator that are wanted and exist.
std::vector<Subject> subjects_of(const Options& options, const Library& library) {
  std::vector<Subject> subjects;
  const bool has_op = reduces(options.collective);
  for (const kolo_dtype dtype : options.dtypes) {
    for (const kolo_op op : options.ops) {
      if (has_op && !library.can_reduce(dtype, op)) continue;
      for (const std::size_t size : options.sizes) {
        Subject subject{options.collective, 0, 0, dtype, op, options.root};
        const std::size_t element = dtype_bytes(dtype);
        subject.count = count_for(options.collective, size, element, library.size());
        subject.bytes = std::max(input_count(options.collective, subject.count, library.size()),
                                 output_count(options.collective, subject.count, library.size())) *
                        element;
        subjects.push_back(subject);
      }
      if (!has_op) break;  // there is no operator to vary
    }
  }
  return subjects;
}

std::size_t largest_bytes(const std::vector<Subject>& subjects) {
  std::size_t most = 0;
  for (const Subject& subject : subjects) most = std::max(most, subject.bytes);
  return most;
}

// This rank's mean time of a call.
double mean_us(const Options& options, Library& library, CallCase& what, CounterRecord& record) {
  double total_us = 0;
  if (options.refill) {
    for (int i = 0; i < options.iterations; ++i) {
      what.fill();
      library.barrier();
      record.start();
      const Stopwatch watch;
      library.run();
      total_us += watch.us();
      record.stop(1);
    }
  } else {
    library.barrier();
    record.start();
    const Stopwatch watch;
    for (int i = 0; i < options.iterations; ++i) library.run();
    total_us = watch.us();
    record.stop(options.iterations);
  }
  return total_us / options.iterations;
}

Figure measure_way(const Options& options, Library& library, const Subject& subject, CallCase& what,
                   CounterRecord& record) {
  library.prepare(what.call());
  what.fill();
  for (int i = 0; i < options.warmups; ++i) library.run();
  std::vector<double> slowest = {mean_us(options, library, what, record)};
  library.largest(slowest);
  Figure figure;
  figure.time_us = slowest.front();
  figure.algbw = static_cast<double>(subject.bytes) / figure.time_us * 1e-3;
  figure.busbw = figure.algbw * bus_factor(subject.collective, library.size());
  figure.wrong = check_calls(options, library, what);
  return figure;
}

}  // namespace

std::size_t measure_sweep(const Options& options, Library& library, Printer& printer) {
  const std::vector<Subject> subjects = subjects_of(options, library);
  const Buffer input = make_buffer(library, largest_bytes(subjects));
  const Buffer output = make_buffer(library, largest_bytes(subjects));
  std::size_t wrong = 0;
  for (const Subject& subject : subjects) {
    CounterRecord record(library, options.counters);
    CallCase apart(subject, library, input.get(), output.get());
    const Figure out_of_place = measure_way(options, library, subject, apart, record);
    wrong += out_of_place.wrong;
    if (!has_in_place(subject.collective)) {
      printer.sweep_row(subject, out_of_place, nullptr, record.counted());
      continue;
    }
    CallCase same(subject, library, nullptr, output.get());
    const Figure in_place = measure_way(options, library, subject, same, record);
    wrong += in_place.wrong;
    printer.sweep_row(subject, out_of_place, &in_place, record.counted());
  }
  return wrong;
}

std::size_t measure_latency(const Options& options, Library& library, Printer& printer) {
  const std::vector<Subject> subjects = subjects_of(options, library);
  const Buffer memory = make_buffer(library, largest_bytes(subjects));
  const bool apart = options.collective == Collective::kAlltoall;
  const Buffer input = make_buffer(library, apart ? largest_bytes(subjects) : 0);
  std::size_t all_wrong = 0;
  std::vector<double> calls_us(static_cast<std::size_t>(options.iterations));
  for (const Subject& subject : subjects) {
    CallCase what(subject, library, apart ? input.get() : nullptr, memory.get());
    CounterRecord record(library, options.counters);
    library.prepare(what.call());
    what.fill();
    for (int i = 0; i < options.warmups; ++i) library.run();
    library.barrier();
    record.start();
    for (double& call_us : calls_us) {
      if (options.refill) {
        what.fill();
        library.barrier();
      }
      const Stopwatch watch;
      library.run();
      call_us = watch.us();
    }
    record.stop(options.iterations);
    std::vector<double> worst;
    for (const double share : {0.5, 0.9, 0.99, 0.999, 1.0}) {
      worst.push_back(quantile(calls_us, share));
    }
    library.largest(worst);
    const std::size_t wrong = check_calls(options, library, what);
    all_wrong += wrong;
    printer.latency_row(subject, {worst[0], worst[1], worst[2], worst[3], worst[4]}, wrong,
                        record.counted());
  }
  return all_wrong;
}

int run_rank(const Options& options, Library& library) {
  if (options.collective == Collective::kBroadcast && options.root >= library.size()) {
    usage_error("-r " + std::to_string(options.root) + " is no rank of " +
                std::to_string(library.size()));
  }
  Printer printer(options, library);
  std::size_t wrong = 0;
  switch (options.mode) {
    case Mode::kSweep: wrong = measure_sweep(options, library, printer); break;
    case Mode::kLatency: wrong = measure_latency(options, library, printer); break;
    case Mode::kSteps: wrong = measure_steps(options, library, printer); break;
  }
  printer.close(wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace kolo::bench
