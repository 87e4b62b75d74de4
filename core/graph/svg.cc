// SPDX-License-Identifier: Apache-2.0
#include "core/graph/svg.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/graph/scene.h"

namespace tessera {
namespace {

constexpr double kMargin = 16.0;

struct Style {
  Look look;
  std::string_view name;  // In the legend.
  std::string_view fill;
  std::string_view stroke;
};

// By Look.
constexpr std::array<Style, 11> kStyles = {
    {{Look::kContraction, "contraction", "#dbe8ff", "#3b6fd4"},
     {Look::kElementwise, "elementwise", "#e6f4e1", "#5a9e4b"},
     {Look::kReduction, "reduction", "#fff0d6", "#d98e1f"},
     {Look::kDataMovement, "movement", "#f0f0f3", "#9a9aa5"},
     {Look::kReshard, "reshard", "#fde0e3", "#d0384f"},
     {Look::kComposite, "composite", "#efe5fb", "#8250c8"},
     {Look::kParameter, "parameter", "#fff7c2", "#b89b00"},
     {Look::kInput, "input", "#d8f2f5", "#2190a0"},
     {Look::kOutput, "output", "#3a3a44", "#3a3a44"},
     {Look::kElsewhere, "from another phase", "#ffffff", "#9a9aa5"},
     {Look::kLayer, "", "none", "#c4c4ce"}}};

const Style& style_of(Look look) { return kStyles[static_cast<size_t>(look)]; }

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char character : text) {
    if (character == '&') safe += "&amp;";
    if (character == '<') safe += "&lt;";
    if (character == '>') safe += "&gt;";
    if (character == '"') safe += "&quot;";
    if (std::string_view("&<>\"").find(character) == std::string_view::npos) safe += character;
  }
  return safe;
}

std::string path_of(const std::vector<Point>& route) {
  std::string path = fmt::format("M{:.1f},{:.1f}", route[0].x, route[0].y);
  for (size_t i = 1; i < route.size(); ++i) {
    const Point &a = route[i - 1], &b = route[i];
    if (i % 2 == 0) {
      path += fmt::format(" L{:.1f},{:.1f}", b.x, b.y);  // Straight through a row.
      continue;
    }
    const double bend = std::max(12.0, (b.y - a.y) / 2.0);
    path += fmt::format(" C{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}", a.x, a.y + bend, b.x,
                        b.y - bend, b.x, b.y);
  }
  return path;
}

std::string text_at(double x, double y, double size, std::string_view fill, std::string_view text,
                    std::string_view more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" fill=\"{}\"{}>{}</text>\n",
                     x, y, size, fill, more, escaped(text));
}

std::string box_svg(const Box& box, const Face& face, bool parent) {
  const Style& style = style_of(face.look);
  const bool layer = face.look == Look::kLayer;
  const double radius = face.look == Look::kParameter || face.look == Look::kInput ? 10.0 : 4.0;
  std::string svg = fmt::format(
      "<g><title>{}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
      "rx=\"{}\" fill=\"{}\" stroke=\"{}\"{}{}/>\n",
      escaped(face.tip.empty() ? face.title : face.tip), box.corner.x, box.corner.y, box.width,
      box.height, radius, style.fill, style.stroke,
      parent && !layer ? " fill-opacity=\"0.35\"" : "",
      face.look == Look::kElsewhere ? " stroke-dasharray=\"3 2\"" : "");
  double y = box.corner.y + kLineHeight + 1.0;
  const std::string_view ink = face.look == Look::kOutput ? "#ffffff"
                               : layer                    ? "#77778a"
                                                          : "#1d1d26";
  svg += text_at(box.corner.x + 8.0, y, kTitleSize, ink, face.title, " font-weight=\"bold\"");
  for (const std::string& line : face.lines) {
    y += kLineHeight;
    svg += text_at(box.corner.x + 8.0, y, kTypeSize, "#55555f", line);
  }
  return svg + "</g>\n";
}

// What the colours in use mean; `width` receives how much room that took.
std::string legend_svg(const std::vector<Face>& faces, double& width) {
  constexpr double kSwatch = 16.0, kBetween = 18.0;
  std::string svg;
  double x = kMargin;
  const auto say = [&](std::string_view text) {
    svg += text_at(x, kMargin + 9.0, kTypeSize, "#55555f", text);
    x += static_cast<double>(text.size()) * kTypeSize * kGlyph + kBetween;
  };
  for (const Style& style : kStyles) {
    const bool used = std::any_of(faces.begin(), faces.end(),
                                  [&](const Face& face) { return face.look == style.look; });
    if (!used || style.name.empty()) continue;
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"10\" rx=\"2\" "
        "fill=\"{}\" stroke=\"{}\"/>\n",
        x, kMargin, style.fill, style.stroke);
    x += kSwatch;
    say(style.name);
  }
  say("dashed: a pending sum or maximum");
  width = x;
  return svg;
}

std::string draw(const Scene& scene) {
  constexpr double kLegendHeight = 24.0;
  double legend_width = 0.0;
  const std::string legend = legend_svg(scene.faces, legend_width);
  const double width = std::max(scene.boxes[0].width + 2 * kMargin, legend_width);
  const double height = scene.boxes[0].height + kLegendHeight + 2 * kMargin;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" "
      "viewBox=\"0 0 {:.0f} {:.0f}\" font-family=\"DejaVu Sans Mono, Menlo, Consolas, "
      "monospace\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      width, height, width, height);
  svg += legend;
  svg += fmt::format("<g transform=\"translate({:.1f},{:.1f})\">\n",
                     (width - scene.boxes[0].width) / 2.0, kMargin + kLegendHeight);
  std::vector<bool> parent(scene.boxes.size(), false);
  for (size_t i = 1; i < scene.boxes.size(); ++i)
    parent[static_cast<size_t>(scene.boxes[i].parent)] = true;
  for (size_t i = 1; i < scene.boxes.size(); ++i) {
    if (parent[i]) svg += box_svg(scene.boxes[i], scene.faces[i], true);
  }
  for (size_t i = 0; i < scene.wires.size(); ++i) {
    svg += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.2\"{}/>\n",
                       path_of(scene.wires[i].route), scene.pending[i] ? "#d0384f" : "#8a8a99",
                       scene.pending[i] ? " stroke-dasharray=\"4 3\"" : "");
  }
  for (size_t i = 1; i < scene.boxes.size(); ++i) {
    if (!parent[i]) svg += box_svg(scene.boxes[i], scene.faces[i], false);
  }
  return svg + "</g>\n</svg>\n";
}

}  // namespace

std::string graph_svg(const Graph& graph) { return draw(make_scene(graph)); }

}  // namespace tessera
