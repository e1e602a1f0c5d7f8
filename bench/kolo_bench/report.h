// Printer: rows as a table in nccl-tests' form and as JSON lines. On ranks other than 0 it prints
// nothing. Belongs to one thread; owns the JSON file.
#pragma once

#include <cstddef>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/kolo_bench/library.h"
#include "bench/kolo_bench/options.h"

namespace kolo::bench {

// What the library counted during timed calls, on this rank.
struct Counted {
  std::map<std::string, double> totals;
  double operations = 0;

  void add(const Counted& other);
};

// One way of a size, out of place or in place.
struct Figure {
  double time_us = 0;
  double algbw = 0;  // GB/s
  double busbw = 0;
  std::size_t wrong = 0;
};

// By what a row is known.
struct Subject {
  Collective collective = Collective::kAllreduce;
  std::size_t bytes = 0;
  std::size_t count = 0;
  kolo_dtype dtype = KOLO_FLOAT32;
  kolo_op op = KOLO_SUM;
  int root = 0;
};

struct Percentiles {
  double p50_us = 0, p90_us = 0, p99_us = 0, p999_us = 0, max_us = 0;
};

struct StepFigure {
  std::size_t tensors = 0;
  double median_us = 0, p90_us = 0, min_us = 0;
};

class Printer {
 public:
  Printer(const Options& options, const Library& library);

  void sweep_row(const Subject& subject, const Figure& out_of_place, const Figure* in_place,
                 const Counted& counted);
  void latency_row(const Subject& subject, const Percentiles& figure, std::size_t wrong,
                   const Counted& counted);
  void step_row(const Subject& subject, const StepFigure& figure, std::size_t wrong,
                std::uint64_t seed, const Counted& counted);
  // The lines after the rows.
  void close(std::size_t wrong);

 private:
  [[nodiscard]] nlohmann::json row_base(const char* bench, const Subject& subject,
                                        const Counted& counted) const;
  void print_head() const;
  void finish_row(const std::string& text, const nlohmann::json& row, const Counted& counted);
  [[nodiscard]] std::string wrong_text(std::size_t wrong) const;
  [[nodiscard]] nlohmann::json wrong_json(std::size_t wrong) const;
  [[nodiscard]] nlohmann::json figure_json(const Figure& figure) const;

  const Options& options_;
  Facts facts_;
  int ranks_;
  bool prints_;
  std::ofstream json_;
  std::vector<double> busbws_;
  Counted counted_;
};

}  // namespace kolo::bench
