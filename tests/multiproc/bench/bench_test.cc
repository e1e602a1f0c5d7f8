// kolo-bench as it is used: through kolorun in every mode, its JSON, its exit codes; and beside
// MPICH where its program is built. Nothing is asserted about how long anything takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/multiproc/launcher/process.h"

namespace kolo::test {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

const std::string kBench = KOLO_BENCH;
constexpr double kLimitSeconds = 120;

struct BenchRun {
  Outcome outcome;
  std::vector<Json> rows;
};

// With two ranks and a JSON file.
BenchRun run_bench(const Words& words, Words launcher = {KOLO_KOLORUN, "-np", "2"}) {
  const TemporaryFolder folder;
  const std::string json = folder / "rows.jsonl";
  Words command = std::move(launcher);
  command.push_back(kBench);
  command.insert(command.end(), words.begin(), words.end());
  command.insert(command.end(), {"--json", json});
  RunOptions options;
  options.timeout_seconds = kLimitSeconds;
  BenchRun result{run(command, options), {}};
  for (const std::string& line : lines_of(read_file(json))) {
    result.rows.push_back(Json::parse(line));
  }
  return result;
}

void expect_facts(const Json& row, const std::string& collective) {
  EXPECT_EQ(row.at("system"), "kolo");
  EXPECT_EQ(row.at("collective"), collective);
  EXPECT_EQ(row.at("ranks"), 2);
  EXPECT_EQ(row.at("hosts"), 1);
  EXPECT_NE(row.at("version"), "");
  EXPECT_NE(row.at("road"), "");
}

void expect_figure(const Json& figure) {
  EXPECT_GT(figure.at("time_us").get<double>(), 0);
  EXPECT_TRUE(figure.at("algbw").is_number());
  EXPECT_TRUE(figure.at("busbw").is_number());
  EXPECT_EQ(figure.at("wrong"), 0);
}

TEST(KoloBench, AllreduceSweepsSizesByFactorAndByStep) {
  const BenchRun by_factor = run_bench({"allreduce", "-b", "8", "-e", "64K", "-f", "16", "-n", "3",
                                        "-w", "1", "-c", "1", "-d", "float32", "-o", "sum"});
  ASSERT_EQ(by_factor.outcome.exit_code, 0) << by_factor.outcome.err;
  for (const char* part : {"out-of-place", "in-place", "algbw", "busbw", "#wrong", "2 ranks",
                           "1 host", "Avg bus bandwidth", "Wrong elements       : 0 OK"}) {
    EXPECT_THAT(by_factor.outcome.out, HasSubstr(part));
  }
  ASSERT_EQ(by_factor.rows.size(), 4u);  // 8, 128, 2K, 32K
  std::size_t bytes = 8;
  for (const Json& row : by_factor.rows) {
    expect_facts(row, "allreduce");
    expect_figure(row.at("out_of_place"));
    expect_figure(row.at("in_place"));
    EXPECT_EQ(row.at("bytes"), bytes);
    EXPECT_EQ(row.at("count"), bytes / 4);
    EXPECT_EQ(row.at("type"), "float32");
    EXPECT_EQ(row.at("redop"), "sum");
    EXPECT_EQ(row.at("memory"), "malloc");
    EXPECT_EQ(row.at("inputs"), "repeated");
    // 2(n-1)/n of two ranks
    EXPECT_DOUBLE_EQ(row.at("in_place").at("busbw"), row.at("in_place").at("algbw"));
    bytes *= 16;
  }
  const BenchRun by_step =
      run_bench({"-minbytes", "1K", "-maxbytes", "3K", "-stepbytes", "1K", "-n", "2", "-w", "1"});
  ASSERT_EQ(by_step.outcome.exit_code, 0) << by_step.outcome.err;
  EXPECT_EQ(by_step.rows.size(), 3u);
}

TEST(KoloBench, EveryTypeAndOperatorIsRight) {
  const BenchRun all =
      run_bench({"allreduce", "-b", "1K", "-e", "1K", "-d", "all", "-o", "all", "-n", "1"});
  ASSERT_EQ(all.outcome.exit_code, 0) << all.outcome.out << all.outcome.err;
  EXPECT_EQ(all.rows.size(), 12u * 5 + 4);  // bool has no avg, 8-bit floats nothing
  for (const Json& row : all.rows) {
    expect_figure(row.at("out_of_place"));
    expect_figure(row.at("in_place"));
  }
}

TEST(KoloBench, OtherCollectives) {
  const BenchRun gather = run_bench({"allgather", "-b", "1K", "-e", "1K", "-n", "2", "--refill"});
  ASSERT_EQ(gather.rows.size(), 1u) << gather.outcome.err;
  expect_facts(gather.rows[0], "allgather");
  expect_figure(gather.rows[0].at("in_place"));
  EXPECT_EQ(gather.rows[0].at("count"), 128);
  EXPECT_EQ(gather.rows[0].at("inputs"), "refilled");
  EXPECT_EQ(gather.rows[0].at("redop"), "none");

  const BenchRun scatter = run_bench(
      {"reduce_scatter", "-b", "1000", "-e", "1000", "-o", "all", "-d", "i32", "-n", "2"});
  ASSERT_EQ(scatter.rows.size(), 5u) << scatter.outcome.err;
  for (const Json& row : scatter.rows) {
    expect_facts(row, "reduce_scatter");
    expect_figure(row.at("out_of_place"));
    expect_figure(row.at("in_place"));
    EXPECT_EQ(row.at("count"), 125);
    EXPECT_EQ(row.at("bytes"), 1000);
    const Json& figure = row.at("in_place");
    EXPECT_DOUBLE_EQ(figure.at("busbw").get<double>() * 2, figure.at("algbw"));
  }

  for (const Words& how : {Words{"-n", "2"}, Words{"--latency", "-n", "9"}}) {
    Words words = {"alltoall", "-b", "1000", "-e", "1000", "-d", "f16"};
    words.insert(words.end(), how.begin(), how.end());
    const BenchRun exchange = run_bench(words);
    ASSERT_EQ(exchange.rows.size(), 1u) << exchange.outcome.err;
    const Json& row = exchange.rows[0];
    expect_facts(row, "alltoall");
    EXPECT_EQ(row.at("count"), 250);
    EXPECT_FALSE(row.contains("in_place"));
    EXPECT_EQ(row.contains("wrong") ? row.at("wrong") : row.at("out_of_place").at("wrong"), 0);
  }

  const BenchRun broadcast =
      run_bench({"broadcast", "-r", "1", "-d", "bf16", "-b", "1K", "-e", "1K", "-n", "2"});
  ASSERT_EQ(broadcast.rows.size(), 1u) << broadcast.outcome.err;
  expect_figure(broadcast.rows[0].at("out_of_place"));
  expect_figure(broadcast.rows[0].at("in_place"));
  EXPECT_EQ(broadcast.rows[0].at("root"), 1);

  const BenchRun barrier = run_bench({"barrier", "-n", "3", "--counters"});
  ASSERT_EQ(barrier.rows.size(), 1u) << barrier.outcome.err;
  expect_facts(barrier.rows[0], "barrier");
  EXPECT_FALSE(barrier.rows[0].contains("in_place"));
  EXPECT_THAT(barrier.outcome.out, HasSubstr("Counted per operation"));
}

TEST(KoloBench, LatencyHasOrderedPercentiles) {
  const BenchRun latency = run_bench({"--latency", "-b", "8", "-e", "64", "-f", "8", "-n", "30"});
  ASSERT_EQ(latency.outcome.exit_code, 0) << latency.outcome.err;
  ASSERT_EQ(latency.rows.size(), 2u);
  for (const Json& row : latency.rows) {
    expect_facts(row, "allreduce");
    double last = 0;
    for (const char* key : {"p50_us", "p90_us", "p99_us", "p99.9_us", "max_us"}) {
      EXPECT_GE(row.at(key).get<double>(), last) << key;
      last = row.at(key);
    }
    EXPECT_GT(last, 0);
    EXPECT_EQ(row.at("wrong"), 0);
  }
}

TEST(KoloBench, GradientStepsInAnyOrder) {
  const TemporaryFolder folder;
  const std::string set = folder / "model.txt";
  std::ofstream(set) << "# a small model\nfirst 1000\n7\nlast 5000\nscalar 1\nempty 0\n";
  for (const Words& how : {Words{"--seed", "7"}, Words{"--persistent"}, Words{"--shuffle", "0"},
                           Words{"--refill", "-d", "f16"}}) {
    Words words = {"--gradients", set, "-n", "3", "-w", "2", "-c", "2"};
    words.insert(words.end(), how.begin(), how.end());
    const BenchRun steps = run_bench(words);
    ASSERT_EQ(steps.outcome.exit_code, 0) << how[0] << steps.outcome.err;
    ASSERT_EQ(steps.rows.size(), 1u);
    const Json& row = steps.rows[0];
    expect_facts(row, "allreduce");
    EXPECT_EQ(row.at("tensors"), 5);
    EXPECT_EQ(row.at("count"), 6008);
    EXPECT_EQ(row.at("wrong"), 0);
    EXPECT_GT(row.at("median_us").get<double>(), 0);
    EXPECT_LE(row.at("median_us").get<double>(), row.at("p90_us").get<double>());
    EXPECT_EQ(row.at("shuffled"), how[0] != "--shuffle");
    EXPECT_EQ(row.at("persistent"), how[0] == "--persistent");
    if (how[0] == "--seed") {
      EXPECT_THAT(steps.outcome.out, HasSubstr("--seed 7"));
      EXPECT_EQ(row.at("seed"), 7);
    }
  }
}

// One byte of one result is damaged before the check looks: it must be counted and end in code 1.
TEST(KoloBench, AWrongResultIsFound) {
  const BenchRun sweep =
      run_bench({"-b", "1K", "-e", "1K", "-n", "1", "-d", "int32", "--test-spoil"});
  EXPECT_EQ(sweep.outcome.exit_code, 1);
  EXPECT_THAT(sweep.outcome.out, HasSubstr("Wrong elements       : 2 FAILED"));
  ASSERT_EQ(sweep.rows.size(), 1u);
  EXPECT_EQ(sweep.rows[0].at("out_of_place").at("wrong"), 1);
  EXPECT_EQ(sweep.rows[0].at("in_place").at("wrong"), 1);
  for (const Words& mode :
       {Words{"--latency", "-b", "8", "-e", "8"}, Words{"--gradients", "tiny", "-w", "0"}}) {
    Words words = mode;
    words.insert(words.end(), {"-n", "1", "-d", "int32", "--test-spoil"});
    const BenchRun other = run_bench(words);
    EXPECT_EQ(other.outcome.exit_code, 1) << other.outcome.err;
    ASSERT_EQ(other.rows.size(), 1u);
    EXPECT_EQ(other.rows[0].at("wrong"), 1);
  }
  const BenchRun unchecked =
      run_bench({"-b", "8", "-e", "8", "-n", "1", "-c", "0", "--test-spoil"});
  EXPECT_EQ(unchecked.outcome.exit_code, 0);
  ASSERT_EQ(unchecked.rows.size(), 1u);
  EXPECT_TRUE(unchecked.rows[0].at("in_place").at("wrong").is_null());
}

TEST(KoloBench, UsageErrorsAreOneLineAndCode2) {
  struct Case {
    Words words;
    const char* says;
  };
  for (const Case& c : std::initializer_list<Case>{{{"--nonsense"}, "'--nonsense'"},
                                                   {{"reduce"}, "'reduce'"},
                                                   {{"allreduce", "barrier"}, "'barrier'"},
                                                   {{"-d", "f99"}, "'f99'"},
                                                   {{"-o", "xor"}, "'xor'"},
                                                   {{"-o", "avg", "-d", "bool"}, "avg of bool"},
                                                   {{"-d", "fp8_e4m3"}, "sum of float8_e4m3"},
                                                   {{"allgather", "-o", "max"}, "no operator"},
                                                   {{"-b", "8", "-e", "4"}, "-e"},
                                                   {{"-b", "1.5K"}, "'1.5K'"},
                                                   {{"-f", "2", "-i", "8"}, "-i"},
                                                   {{"-f", "1"}, "-f"},
                                                   {{"-n", "0"}, "-n"},
                                                   {{"-n"}, "'-n'"},
                                                   {{"-np", "2"}, "kolorun"},
                                                   {{"--rounds", "2"}, "--peer"},
                                                   {{"--peer", "nccl"}, "'nccl'"},
                                                   {{"--peer", "mpich", "-d", "f16"}, "MPI"},
                                                   {{"--memory", "gpu"}, "'gpu'"},
                                                   {{"--gradients", "vgg"}, "'vgg'"},
                                                   {{"--gradients", "tiny", "-b", "8"}, "-b"},
                                                   {{"--gradients", "tiny", "--latency"}, "exc"}}) {
    Words command = {kBench};
    command.insert(command.end(), c.words.begin(), c.words.end());
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.exit_code, 2) << c.says << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(lines_of(outcome.err).size(), 1u) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(c.says));
  }
  EXPECT_EQ(run_bench({"broadcast", "-r", "2"}).outcome.exit_code, 2);
  EXPECT_EQ(run_bench({"--peer", "mpich"}).outcome.exit_code, 2);
  const Outcome help = run({kBench, "--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* part : {"--gradients", "--peer", "busbw", "slowest rank counts"}) {
    EXPECT_THAT(help.out, HasSubstr(part));
  }
}

TEST(KoloBench, MemoryOfKolo) {
  const Words sizes = {"--memory", "kolo", "-b", "8", "-e", "64K", "-f", "64", "-n", "2"};
  const BenchRun sweep = run_bench(sizes);
  ASSERT_EQ(sweep.outcome.exit_code, 0) << sweep.outcome.err;
  EXPECT_THAT(sweep.outcome.out, HasSubstr("memory from kolo"));
  ASSERT_EQ(sweep.rows.size(), 3u);
  for (const Json& row : sweep.rows) {
    EXPECT_EQ(row.at("memory"), "kolo");
    expect_figure(row.at("out_of_place"));
    expect_figure(row.at("in_place"));
  }
  const BenchRun steps = run_bench({"--memory", "kolo", "--gradients", "tiny", "-n", "1"});
  ASSERT_EQ(steps.outcome.exit_code, 0) << steps.outcome.err;
  ASSERT_EQ(steps.rows.size(), 1u);
  EXPECT_EQ(steps.rows[0].at("wrong"), 0);
}

// Without a launcher it is a job of one rank.
TEST(KoloBench, OneRankAlone) {
  const BenchRun alone = run_bench({"-b", "8", "-e", "8", "-n", "2"}, {});
  ASSERT_EQ(alone.outcome.exit_code, 0) << alone.outcome.err;
  ASSERT_EQ(alone.rows.size(), 1u);
  EXPECT_EQ(alone.rows[0].at("ranks"), 1);
}

TEST(KoloBench, PeerRunsTheSameSizesInTurn) {
#ifndef KOLO_BENCH_HAS_PEER
  GTEST_SKIP() << "the peer's program is not built (KOLO_BUILD_BENCH=ON, and MPICH installed)";
#endif
  struct Case {
    Words words;
    std::vector<std::string> columns;
    std::size_t rows;
    std::size_t rounds = 1;
  };
  for (const Case& c : std::initializer_list<Case>{
           {{"allreduce", "-b", "8", "-e", "1K", "-f", "128"}, {"out-of-place", "in-place"}, 2, 2},
           {{"reduce_scatter", "-b", "1K", "-e", "1K"}, {"out-of-place", "in-place"}, 1},
           {{"allgather", "-b", "1K", "-e", "1K"}, {"out-of-place", "in-place"}, 1},
           {{"alltoall", "-b", "1K", "-e", "1K"}, {"out-of-place"}, 1},
           {{"broadcast", "-r", "1", "-b", "1K", "-e", "1K"}, {"out-of-place", "in-place"}, 1},
           {{"barrier"}, {"out-of-place"}, 1},
           {{"--latency", "-b", "8", "-e", "8", "--mpich-tcp"}, {"p50", "p99"}, 1},
           {{"--gradients", "tiny", "-w", "1"}, {"median", "p90"}, 1}}) {
    Words words = {"--peer", "mpich", "-np", "2", "--rounds", std::to_string(c.rounds), "-n", "2"};
    words.insert(words.end(), c.words.begin(), c.words.end());
    const BenchRun both = run_bench(words, {});
    ASSERT_EQ(both.outcome.exit_code, 0) << c.words[0] << both.outcome.err;
    ASSERT_EQ(both.rows.size(), c.rows) << c.words[0];
    for (const Json& row : both.rows) {
      EXPECT_EQ(row.at("peer"), "mpich");
      EXPECT_EQ(row.at("rounds"), c.rounds);
      for (const std::string& column : c.columns) {
        const Json& figure = row.at(column);
        EXPECT_EQ(figure.at("kolo_rounds_us").size(), c.rounds);
        EXPECT_EQ(figure.at("peer_rounds_us").size(), c.rounds);
        EXPECT_GT(figure.at("ratio").get<double>(), 0);
      }
    }
  }
}

}  // namespace
}  // namespace kolo::test
