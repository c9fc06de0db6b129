// A stand-in for MIGraphX's C API. It compiles nothing, keeps a program as the list of its parameters, and appends every
// request to the file in MXR_DOUBLE_LOG. Its programs return zeros. With MXR_DOUBLE_PROGRAM, the path of a real program
// file, each saved file begins with the bytes of that file, and its own data follows where readers do not look.
// MXR_DOUBLE_BAD makes compile abort, hang or fail ("refuse"), or makes load fail for saved files ("forget").
// Source of the signatures: ROCm/AMDMIGraphX, src/api/include/migraphx/migraphx.h.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

namespace {
constexpr int kSuccess = 0, kBadParameter = 1;
constexpr const char* kMagic = "stand-in program";

// Converts a data type of onnx.proto to migraphx_shape_datatype_t:
// bool 1, half 2, float 3, double 4, uint8 5, int8 6, uint16 7, int16 8, int32 9, int64 10, uint32 11, uint64 12
int type_of(std::uint64_t onnx) {
  static const int types[] = {0, 3, 5, 6, 7, 8, 9, 10, 0, 1, 2, 4, 11, 12};
  return onnx < 14 ? types[onnx] : 0;
}
std::size_t width_of(int type) {
  static const std::size_t widths[] = {0, 1, 2, 4, 8, 1, 1, 2, 2, 4, 8, 4, 8};
  return type < 13 ? widths[type] : 0;
}

struct Shape {
  int type = 3;
  std::vector<std::size_t> lens, strides;
  std::size_t bytes() const {
    std::size_t count = width_of(type);
    for (auto len : lens) count *= len;
    return count;
  }
  void pack() {
    strides.assign(lens.size(), 1);
    for (std::size_t at = lens.size(); at > 1; --at) strides[at - 2] = strides[at - 1] * lens[at - 1];
  }
};
struct Named { std::string name; Shape shape; };
struct Program { std::vector<Named> inputs; std::vector<Shape> outputs; std::vector<std::string> names; std::string flags; };
struct Shapes { std::vector<Shape> rows; };
struct ParameterShapes { std::vector<Named> rows; };
struct Argument { Shape shape; char* data = nullptr; std::shared_ptr<std::vector<char>> own; };
struct Arguments { std::vector<Argument> rows; };
struct Parameters { std::map<std::string, Argument> rows; };
struct OnnxOptions { std::map<std::string, std::vector<std::size_t>> shapes; std::string external; };
struct CompileOptions { bool fast_math = true, exhaustive = false; };

void tell(const std::string& verb, const std::string& what) {
  const char* log = std::getenv("MXR_DOUBLE_LOG");
  if (log) std::ofstream(log, std::ios::app) << verb << '\t' << what << '\n';
}

// Reads a protobuf message field by field.
struct Reader {
  const unsigned char *at, *end;
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; at < end && shift < 64; shift += 7) {
      unsigned char byte = *at++;
      value |= std::uint64_t(byte & 127) << shift;
      if (byte < 128) break;
    }
    return value;
  }
  template <class Visit> void each(Visit visit) {
    while (at < end) {
      std::uint64_t tag = varint();
      if ((tag & 7) == 0) { visit(tag >> 3, varint(), Reader{at, at}); }
      else if ((tag & 7) == 2) { std::uint64_t size = varint(); Reader inner{at, at + size}; at += size; visit(tag >> 3, 0, inner); }
      else { at += (tag & 7) == 1 ? 8 : 4; }
    }
  }
  std::string text() const { return std::string(reinterpret_cast<const char*>(at), end - at); }
};

Named value_of(Reader value) {
  Named found;
  value.each([&](std::uint64_t field, std::uint64_t, Reader inner) {
    if (field == 1) found.name = inner.text();
    if (field != 2) return;
    inner.each([&](std::uint64_t kind, std::uint64_t, Reader tensor) {
      if (kind != 1) return;
      tensor.each([&](std::uint64_t part, std::uint64_t number, Reader shape) {
        if (part == 1) found.shape.type = type_of(number);
        if (part != 2) return;
        shape.each([&](std::uint64_t, std::uint64_t, Reader dim) {
          std::size_t size = 1;
          dim.each([&](std::uint64_t which, std::uint64_t len, Reader) { if (which == 1) size = len; });
          found.shape.lens.push_back(size);
        });
      });
    });
  });
  found.shape.pack();
  return found;
}

Program parse(Reader model, const OnnxOptions& options) {
  Program program;
  std::vector<Named> inputs;
  std::map<std::string, bool> initializers;
  model.each([&](std::uint64_t field, std::uint64_t, Reader graph) {
    if (field != 7) return;
    graph.each([&](std::uint64_t part, std::uint64_t, Reader inner) {
      if (part == 11) inputs.push_back(value_of(inner));
      if (part == 12) { auto found = value_of(inner); program.names.push_back(found.name); program.outputs.push_back(found.shape); }
      if (part == 5) inner.each([&](std::uint64_t of, std::uint64_t, Reader name) { if (of == 8) initializers[name.text()] = true; });
    });
  });
  for (auto& input : inputs) {
    if (initializers.count(input.name)) continue;
    auto given = options.shapes.find(input.name);
    if (given != options.shapes.end()) { input.shape.lens = given->second; input.shape.pack(); }
    program.inputs.push_back(input);
  }
  return program;
}

void write(std::ostream& out, const std::string& name, const Shape& shape) {
  out << name << '\t' << shape.type;
  for (auto len : shape.lens) out << ' ' << len;
  out << '\n';
}
Named read(const std::string& line) {
  Named found;
  auto tab = line.find('\t');
  found.name = line.substr(0, tab);
  std::istringstream rest(line.substr(tab + 1));
  rest >> found.shape.type;
  for (std::size_t len; rest >> len;) found.shape.lens.push_back(len);
  found.shape.pack();
  return found;
}
bool bad(const char* how) {
  const char* asked = std::getenv("MXR_DOUBLE_BAD");
  return asked && std::strcmp(asked, how) == 0;
}
std::string content(const char* name) {
  std::ifstream file(name, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}
// A MessagePack binary: tag, length in 4 bytes, data.
std::string packed(const std::string& text) {
  std::string head = "\xc6";
  for (int shift = 24; shift >= 0; shift -= 8) head += char(text.size() >> shift & 255);
  return head + text;
}
std::string output_name(std::size_t at) { return "main:#output_" + std::to_string(at); }
}  // namespace

extern "C" {
int migraphx_load(Program** out, const char* name, const void*) {
  std::string data = content(name), line;
  std::size_t at = data.rfind(kMagic);
  bool there = bool(std::ifstream(name)), good = at != std::string::npos && !bad("forget");
  tell(good ? "load" : there ? "damaged" : "miss", name);
  if (!good) return kBadParameter;
  std::istringstream file(data.substr(at));
  std::getline(file, line);
  auto program = std::make_unique<Program>();
  std::getline(file, program->flags);
  while (std::getline(file, line)) {
    Named found = read(line);
    if (found.name.rfind("main:#output_", 0) == 0) program->outputs.push_back(found.shape);
    else program->inputs.push_back(found);
  }
  *out = program.release();
  return kSuccess;
}
int migraphx_save(Program* program, const char* name, const void*) {
  tell("save", name);
  std::ostringstream text;
  text << kMagic << '\n' << program->flags << '\n';
  for (auto& input : program->inputs) write(text, input.name, input.shape);
  for (std::size_t at = 0; at < program->outputs.size(); ++at) write(text, output_name(at), program->outputs[at]);
  const char* before = std::getenv("MXR_DOUBLE_PROGRAM");
  std::ofstream file(name, std::ios::binary);
  if (!file) return kBadParameter;
  file << (before ? content(before) + packed(text.str()) : text.str());
  return kSuccess;
}
int migraphx_parse_onnx_buffer(Program** out, const void* data, std::size_t size, const OnnxOptions* options) {
  auto bytes = static_cast<const unsigned char*>(data);
  *out = new Program(parse(Reader{bytes, bytes + size}, *options));
  std::string names;
  for (auto& input : (*out)->inputs) names += (names.empty() ? "" : ",") + input.name;
  tell("parse", names);
  if (const char* folder = std::getenv("MXR_DOUBLE_DUMP")) {
    static int count = 0;
    std::ofstream(std::string(folder) + "/" + std::to_string(count++) + ".onnx", std::ios::binary)
        .write(static_cast<const char*>(data), size);
  }
  return kSuccess;
}
int migraphx_program_create(Program** out) { *out = new Program; return kSuccess; }
int migraphx_program_destroy(Program* program) { delete program; return kSuccess; }
int migraphx_program_assign_to(Program* to, const Program* from) { *to = *from; return kSuccess; }
int migraphx_program_compile(Program* program, void*, const CompileOptions* options) {
  program->flags += options->fast_math ? "fast_math " : "";
  program->flags += options->exhaustive ? "exhaustive " : "";
  tell("compile", program->flags);
  if (bad("abort")) std::abort();
  if (bad("refuse")) return kBadParameter;
  while (bad("hang")) ::sleep(1);
  return kSuccess;
}
int migraphx_program_get_parameter_shapes(ParameterShapes** out, const Program* program) {
  *out = new ParameterShapes{program->inputs};
  for (std::size_t at = 0; at < program->outputs.size(); ++at)
    (*out)->rows.push_back({output_name(at), program->outputs[at]});
  return kSuccess;
}
int migraphx_program_get_output_shapes(Shapes** out, const Program* program) {
  *out = new Shapes{program->outputs};
  return kSuccess;
}
int migraphx_program_run_async(Arguments** out, const Program* program, Parameters* given, void*, const char*) {
  tell("run", "");
  *out = new Arguments;
  for (std::size_t at = 0; at < program->outputs.size(); ++at) {
    auto found = given->rows.find(output_name(at));
    Argument result;
    if (found != given->rows.end()) result = found->second;
    else {
      result.shape = program->outputs[at];
      result.own = std::make_shared<std::vector<char>>(result.shape.bytes() + 1);
      result.data = result.own->data();
    }
    std::memset(result.data, 0, result.shape.bytes());
    (*out)->rows.push_back(result);
  }
  return kSuccess;
}

int migraphx_shape_create_scalar(Shape** out, int type) { *out = new Shape; (*out)->type = type; return kSuccess; }
int migraphx_shape_destroy(Shape* shape) { delete shape; return kSuccess; }
int migraphx_shape_lengths(const std::size_t** out, std::size_t* size, const Shape* shape) {
  *out = shape->lens.data(); *size = shape->lens.size(); return kSuccess;
}
int migraphx_shape_strides(const std::size_t** out, std::size_t* size, const Shape* shape) {
  *out = shape->strides.data(); *size = shape->strides.size(); return kSuccess;
}
int migraphx_shape_type(int* out, const Shape* shape) { *out = shape->type; return kSuccess; }
int migraphx_shape_bytes(std::size_t* out, const Shape* shape) { *out = shape->bytes(); return kSuccess; }
int migraphx_shapes_size(std::size_t* out, Shapes* shapes) { *out = shapes->rows.size(); return kSuccess; }
int migraphx_shapes_get(const Shape** out, Shapes* shapes, std::size_t at) { *out = &shapes->rows.at(at); return kSuccess; }
int migraphx_shapes_destroy(Shapes* shapes) { delete shapes; return kSuccess; }

int migraphx_argument_create(Argument** out, const Shape* shape, void* data) {
  *out = new Argument{*shape, static_cast<char*>(data), nullptr};
  return kSuccess;
}
int migraphx_argument_destroy(Argument* argument) { delete argument; return kSuccess; }
int migraphx_argument_shape(const Shape** out, const Argument* argument) { *out = &argument->shape; return kSuccess; }
int migraphx_argument_buffer(char** out, const Argument* argument) { *out = argument->data; return kSuccess; }
int migraphx_arguments_size(std::size_t* out, Arguments* arguments) { *out = arguments->rows.size(); return kSuccess; }
int migraphx_arguments_get(const Argument** out, Arguments* arguments, std::size_t at) {
  *out = &arguments->rows.at(at);
  return kSuccess;
}
int migraphx_arguments_destroy(Arguments* arguments) { delete arguments; return kSuccess; }

int migraphx_program_parameter_shapes_size(std::size_t* out, ParameterShapes* shapes) {
  *out = shapes->rows.size();
  return kSuccess;
}
int migraphx_program_parameter_shapes_names(const char** out, ParameterShapes* shapes) {
  for (auto& row : shapes->rows) *out++ = row.name.c_str();
  return kSuccess;
}
int migraphx_program_parameter_shapes_get(const Shape** out, ParameterShapes* shapes, const char* name) {
  for (auto& row : shapes->rows)
    if (row.name == name) { *out = &row.shape; return kSuccess; }
  return kBadParameter;
}
int migraphx_program_parameter_shapes_destroy(ParameterShapes* shapes) { delete shapes; return kSuccess; }
int migraphx_program_parameters_create(Parameters** out) { *out = new Parameters; return kSuccess; }
int migraphx_program_parameters_destroy(Parameters* parameters) { delete parameters; return kSuccess; }
int migraphx_program_parameters_add(Parameters* parameters, const char* name, const Argument* argument) {
  parameters->rows[name] = *argument;
  return kSuccess;
}

int migraphx_target_create(void** out, const char* name) { *out = new std::string(name); return kSuccess; }
int migraphx_target_destroy(void* target) { delete static_cast<std::string*>(target); return kSuccess; }
int migraphx_onnx_options_create(OnnxOptions** out) { *out = new OnnxOptions; return kSuccess; }
int migraphx_onnx_options_destroy(OnnxOptions* options) { delete options; return kSuccess; }
int migraphx_onnx_options_set_input_parameter_shape(OnnxOptions* options, const char* name, std::size_t* lens, std::size_t size) {
  options->shapes[name].assign(lens, lens + size);
  return kSuccess;
}
int migraphx_onnx_options_set_external_data_path(OnnxOptions* options, const char* path) { options->external = path; return kSuccess; }
int migraphx_file_options_create(void** out) { *out = new std::string("msgpack"); return kSuccess; }
int migraphx_file_options_destroy(void* options) { delete static_cast<std::string*>(options); return kSuccess; }
int migraphx_file_options_set_file_format(void* options, const char* format) { *static_cast<std::string*>(options) = format; return kSuccess; }
int migraphx_compile_options_create(CompileOptions** out) { *out = new CompileOptions; return kSuccess; }
int migraphx_compile_options_destroy(CompileOptions* options) { delete options; return kSuccess; }
int migraphx_compile_options_set_fast_math(CompileOptions* options, bool value) { options->fast_math = value; return kSuccess; }
int migraphx_compile_options_set_exhaustive_tune_flag(CompileOptions* options, bool value) { options->exhaustive = value; return kSuccess; }

int migraphx_quantize_fp16(Program* program) { program->flags += "fp16 "; return kSuccess; }
int migraphx_quantize_bf16(Program* program) { program->flags += "bf16 "; return kSuccess; }
int migraphx_quantize_int8(Program* program, void*, void*) { program->flags += "int8 "; return kSuccess; }
int migraphx_quantize_fp8(Program* program, void*, void*) { program->flags += "fp8 "; return kSuccess; }
int migraphx_quantize_int8_options_create(void** out) { *out = new std::string; return kSuccess; }
int migraphx_quantize_int8_options_destroy(void* options) { delete static_cast<std::string*>(options); return kSuccess; }
int migraphx_quantize_int8_options_add_op_name(void*, const char*) { return kSuccess; }
int migraphx_quantize_int8_options_add_calibration_data(void*, void*) { return kSuccess; }
int migraphx_quantize_fp8_options_create(void** out) { *out = new std::string; return kSuccess; }
int migraphx_quantize_fp8_options_destroy(void* options) { delete static_cast<std::string*>(options); return kSuccess; }
int migraphx_quantize_fp8_options_add_calibration_data(void*, void*) { return kSuccess; }
}
