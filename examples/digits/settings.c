#include "settings.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "shards.h"

static const char kHelp[] =
    "usage: [kolorun -np N] digits [options]\n"
    "Trains a small multilayer perceptron on 1,797 handwritten digits, data-parallel.\n"
    "\n"
    "  --epochs N         passes over the training images (20)\n"
    "  --batch N          images in a step, over all ranks; a multiple of their number (96)\n"
    "  --hidden N         width of the two hidden layers (128)\n"
    "  --seed N           of the weights and of the order of the images (1)\n"
    "  --data FILE        the images, as digits.csv\n"
    "  --shards K         play K ranks in this one process, with plain loops and without kolo;\n"
    "                     the weights are those of kolorun -np K, bit for bit\n"
    "  --no-allreduce     leave the gradients unreduced, to see that it matters\n"
    "  --device           weights and gradients in the memory of a GPU (digits_gpu only); the\n"
    "                     model itself is computed on the host all the same\n"
    "  --help             this text\n";

static int parse_number(const char* option, const char* text, unsigned long long max,
                        unsigned long long* value) {
  char* end = NULL;
  errno = 0;
  *value = strtoull(text, &end, 10);
  if (errno == 0 && text[0] != '-' && end != text && *end == '\0' && *value <= max) return 0;
  fprintf(stderr, "digits: --%s is \"%s\", but must be a number up to %llu\n", option, text, max);
  return -1;
}

static int check(const struct settings* settings) {
  if (settings->hidden == 0 || settings->batch == 0 || settings->epochs == 0) {
    fprintf(stderr, "digits: --hidden, --batch and --epochs must be at least 1\n");
    return -1;
  }
  if (settings->device && settings->shards > 0) {
    fprintf(stderr, "digits: --device is for kolo's ranks, and --shards goes without kolo\n");
    return -1;
  }
  return 0;
}

int settings_parse(int argc, char** argv, struct settings* settings, int* exit_code) {
  enum { kData, kHidden, kBatch, kEpochs, kSeed, kShards, kNoAllreduce, kDevice, kHelpFlag };
  static const struct option kOptions[] = {
      {"data", required_argument, NULL, kData},
      {"hidden", required_argument, NULL, kHidden},
      {"batch", required_argument, NULL, kBatch},
      {"epochs", required_argument, NULL, kEpochs},
      {"seed", required_argument, NULL, kSeed},
      {"shards", required_argument, NULL, kShards},
      {"no-allreduce", no_argument, NULL, kNoAllreduce},
      {"device", no_argument, NULL, kDevice},
      {"help", no_argument, NULL, kHelpFlag},
      {NULL, 0, NULL, 0},
  };
  static const unsigned long long kMax[] = {0, 4096, 1024, 1000000, UINT32_MAX, kMaxShards};
  *settings = (struct settings){.data = KOLO_DIGITS_DATA,
                                .hidden = 128,
                                .batch = 96,
                                .epochs = 20,
                                .seed = 1,
                                .all_reduce = 1};
  *exit_code = 2;
  int option = 0;
  int index = 0;
  while ((option = getopt_long(argc, argv, "", kOptions, &index)) != -1) {
    unsigned long long value = 0;
    if (option >= kHidden && option <= kShards &&
        parse_number(kOptions[index].name, optarg, kMax[option], &value) != 0) {
      return -1;
    }
    switch (option) {
      case kData: settings->data = optarg; break;
      case kHidden: settings->hidden = (size_t)value; break;
      case kBatch: settings->batch = (size_t)value; break;
      case kEpochs: settings->epochs = (size_t)value; break;
      case kSeed: settings->seed = value; break;
      case kShards: settings->shards = (size_t)value; break;
      case kNoAllreduce: settings->all_reduce = 0; break;
      case kDevice: settings->device = 1; break;
      case kHelpFlag:
        fputs(kHelp, stdout);
        *exit_code = 0;
        return -1;
      default: fputs("digits: see --help\n", stderr); return -1;
    }
  }
  if (optind < argc) {
    fprintf(stderr, "digits: what is \"%s\"? See --help\n", argv[optind]);
    return -1;
  }
  return check(settings);
}
