/* Run a SavedModel without Python: read a folder, feed numbers, print numbers.
 *
 *     run_saved_model FOLDER SIGNATURE NAME=SHAPE:NUMBERS ...
 *     run_saved_model classifier serving_default token_ids=2x3:5,7,9,5,7,0
 *
 * Every input of the signature is given by name; its type comes from the file
 * (int32, int64, float32, bool as 0 and 1). One line is printed for each output,
 * in the order of the file: name, shape, numbers.
 *
 * To build it with the C library and the headers that TensorFlow's wheel carries:
 *
 *     TF=$(python -c "import tensorflow as tf; print(tf.sysconfig.get_lib())")
 *     cc -O1 -I$TF/include run_saved_model.c -o run_saved_model \
 *         $TF/libtensorflow_cc.so.2 $TF/libtensorflow_framework.so.2 -Wl,-rpath,$TF
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"

#define MAX_TENSORS 16
#define MAX_DIMS 8

typedef struct {
  const uint8_t *at, *end;
} Bytes;

typedef struct {
  char name[256];    /* what the signature calls it */
  char tensor[256];  /* "operation:index" in the graph */
  int type;
} Slot;

static void fail(const char *what, const char *detail) {
  fprintf(stderr, "%s: %s\n", what, detail);
  exit(1);
}

static void check(TF_Status *status, const char *what) {
  if (TF_GetCode(status) != TF_OK) fail(what, TF_Message(status));
}

/* ---- Protocol buffers, as little of them as a signature needs. ---- */

static uint64_t varint(Bytes *b) {
  uint64_t value = 0;
  for (int shift = 0; b->at < b->end && shift < 64; shift += 7) {
    uint8_t byte = *b->at++;
    value |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) break;
  }
  return value;
}

/* The next field of a message: its number, and its number or its bytes. */
static int next_field(Bytes *message, uint64_t *number, Bytes *bytes) {
  if (message->at >= message->end) return 0;
  uint64_t key = varint(message);
  uint64_t size = 0;
  *number = 0;
  bytes->at = bytes->end = message->at;
  switch (key & 7) {
    case 0: *number = varint(message); return (int)(key >> 3);
    case 1: size = 8; break;
    case 2: size = varint(message); break;
    case 5: size = 4; break;
    default: fail("signature", "not a protocol buffer");
  }
  if (size > (uint64_t)(message->end - message->at)) fail("signature", "cut short");
  bytes->at = message->at;
  bytes->end = message->at += size;
  return (int)(key >> 3);
}

static void copy(char *to, Bytes from) {
  size_t size = (size_t)(from.end - from.at);
  if (size > 255) size = 255;
  memcpy(to, from.at, size);
  to[size] = 0;
}

/* An entry of a map: its key in `key`, its value as bytes. */
static Bytes map_entry(Bytes entry, char *key) {
  Bytes bytes, value = {entry.end, entry.end};
  uint64_t number;
  for (int field; (field = next_field(&entry, &number, &bytes));) {
    if (field == 1) copy(key, bytes);
    if (field == 2) value = bytes;
  }
  return value;
}

/* Inputs (field 1) or outputs (field 2) of a signature. */
static int slots_of(Bytes signature, int wanted, Slot *slots) {
  Bytes bytes;
  uint64_t number;
  int count = 0;
  for (int field; (field = next_field(&signature, &number, &bytes));) {
    if (field != wanted) continue;
    if (count == MAX_TENSORS) fail("signature", "too many tensors");
    Slot *slot = &slots[count++];
    Bytes info = map_entry(bytes, slot->name);
    for (int part; (part = next_field(&info, &number, &bytes));) {
      if (part == 1) copy(slot->tensor, bytes);
      if (part == 2) slot->type = (int)number;
    }
  }
  return count;
}

static Bytes find_signature(const TF_Buffer *meta_graph, const char *name) {
  const uint8_t *data = meta_graph->data;
  Bytes message = {data, data + meta_graph->length}, bytes;
  uint64_t number;
  for (int field; (field = next_field(&message, &number, &bytes));) {
    char key[256] = "";
    if (field != 5) continue; /* signature_def */
    Bytes signature = map_entry(bytes, key);
    if (!strcmp(key, name)) return signature;
  }
  fail("no such signature", name);
  return message;
}

/* ---- Tensors as text. ---- */

static void put(TF_Tensor *tensor, size_t index, const char *text) {
  void *data = TF_TensorData(tensor);
  switch (TF_TensorType(tensor)) {
    case TF_INT32: ((int32_t *)data)[index] = (int32_t)strtol(text, NULL, 10); break;
    case TF_INT64: ((int64_t *)data)[index] = strtoll(text, NULL, 10); break;
    case TF_FLOAT: ((float *)data)[index] = strtof(text, NULL); break;
    case TF_BOOL: ((uint8_t *)data)[index] = strtol(text, NULL, 10) != 0; break;
    default: fail("input type", "only int32, int64, float32 and bool");
  }
}

static TF_Tensor *parse(const char *text, int type) {
  int64_t dims[MAX_DIMS], size = 1;
  int rank = 0;
  char *at = (char *)text;
  do {
    if (rank == MAX_DIMS) fail("shape", text);
    size *= dims[rank++] = strtoll(at, &at, 10);
  } while (*at++ == 'x');
  if (at[-1] != ':') fail("expected SHAPE:NUMBERS", text);
  TF_Tensor *tensor = TF_AllocateTensor((TF_DataType)type, dims, rank,
                                        (size_t)size * TF_DataTypeSize(type));
  int64_t index = 0;
  for (; *at && index < size; index++) {
    put(tensor, (size_t)index, at);
    at += strcspn(at, ",");
    if (*at) at++;
  }
  if (*at || index < size) fail("shape and numbers differ", text);
  return tensor;
}

static void print(const char *name, const TF_Tensor *tensor) {
  const void *data = TF_TensorData(tensor);
  printf("%s ", name);
  for (int i = 0; i < TF_NumDims(tensor); i++)
    printf("%s%lld", i ? "x" : "", (long long)TF_Dim(tensor, i));
  for (int64_t i = 0; i < TF_TensorElementCount(tensor); i++) {
    switch (TF_TensorType(tensor)) {
      case TF_INT32: printf(" %d", ((const int32_t *)data)[i]); break;
      case TF_INT64: printf(" %lld", (long long)((const int64_t *)data)[i]); break;
      case TF_FLOAT: printf(" %.9g", ((const float *)data)[i]); break;
      case TF_BOOL: printf(" %d", ((const uint8_t *)data)[i]); break;
      default: fail("output type", "only int32, int64, float32 and bool");
    }
  }
  printf("\n");
}

static TF_Output locate(TF_Graph *graph, const Slot *slot) {
  char name[256];
  strcpy(name, slot->tensor);
  char *colon = strrchr(name, ':');
  TF_Output output = {NULL, 0};
  if (colon) {
    *colon = 0;
    output.index = atoi(colon + 1);
  }
  output.oper = TF_GraphOperationByName(graph, name);
  if (!output.oper) fail("not in the graph", slot->tensor);
  return output;
}

static const char *argument(int argc, char **argv, const char *name) {
  size_t size = strlen(name);
  for (int i = 3; i < argc; i++)
    if (!strncmp(argv[i], name, size) && argv[i][size] == '=')
      return argv[i] + size + 1;
  fail("missing input", name);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc < 3) fail("usage", "run_saved_model FOLDER SIGNATURE NAME=SHAPE:NUMBERS");
  TF_Status *status = TF_NewStatus();
  TF_Graph *graph = TF_NewGraph();
  TF_Buffer *meta_graph = TF_NewBuffer();
  TF_SessionOptions *options = TF_NewSessionOptions();
  const char *tags[] = {"serve"};
  TF_Session *session = TF_LoadSessionFromSavedModel(options, NULL, argv[1], tags, 1,
                                                     graph, meta_graph, status);
  check(status, "load");

  Slot ins[MAX_TENSORS] = {0}, outs[MAX_TENSORS] = {0};
  Bytes signature = find_signature(meta_graph, argv[2]);
  int num_ins = slots_of(signature, 1, ins), num_outs = slots_of(signature, 2, outs);
  TF_Output feeds[MAX_TENSORS], fetches[MAX_TENSORS];
  TF_Tensor *given[MAX_TENSORS], *results[MAX_TENSORS] = {0};
  for (int i = 0; i < num_ins; i++) {
    feeds[i] = locate(graph, &ins[i]);
    given[i] = parse(argument(argc, argv, ins[i].name), ins[i].type);
  }
  for (int i = 0; i < num_outs; i++) fetches[i] = locate(graph, &outs[i]);

  TF_SessionRun(session, NULL, feeds, given, num_ins, fetches, results, num_outs,
                NULL, 0, NULL, status);
  check(status, "run");
  for (int i = 0; i < num_outs; i++) print(outs[i].name, results[i]);

  for (int i = 0; i < num_ins; i++) TF_DeleteTensor(given[i]);
  for (int i = 0; i < num_outs; i++) TF_DeleteTensor(results[i]);
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  TF_DeleteSessionOptions(options);
  TF_DeleteBuffer(meta_graph);
  TF_DeleteGraph(graph);
  TF_DeleteStatus(status);
  return 0;
}
