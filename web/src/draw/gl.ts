// The WebGL2 painter: pairs of floats as textures, A, B and their difference worked out in the shader, colours from a
// lookup table. Nothing is fetched again to show something else of the same elements.
import { decades, infColour, nanColour, negativeInfColour, shows, zeroColour, type Look, type Painter, type Placed } from './paint';
import type { Tile } from './tiles';

const vertexSource = `#version 300 es
uniform vec4 place; // left, top, width, height in clip space
out vec2 at; // 0 to 1 across the tile
void main() {
  vec2 corner = vec2(gl_VertexID & 1, gl_VertexID >> 1);
  at = corner;
  gl_Position = vec4(place.xy + corner * place.zw, 0.0, 1.0);
}`;

const vec = (rgb: readonly number[]) => `vec3(${rgb.map((c) => (c / 255).toFixed(4)).join(', ')})`;

// A pixel may cover many scalars: it shows the one that differs most, as the coarser levels of the server do.
const fragmentSource = `#version 300 es
precision highp float;
precision highp int;
precision highp sampler2D;
precision highp usampler2D;
uniform sampler2D pairs;
uniform usampler2D kinds;
uniform sampler2D table;
uniform ivec2 size;
uniform vec2 extent; // scalars across and down, the last perhaps in part
uniform vec2 fold; // scalars per pixel
uniform int show;
uniform int sides;
uniform vec2 range;
uniform float swipe;
uniform bool zeros;
in vec2 at;
out vec4 colour;

float weight(vec2 pair, uint kind) {
  uint a = kind & 15u;
  uint b = kind >> 4u;
  bool odd = ((a | b) & 3u) != 0u;
  if (sides == 1) return odd ? 3.4e38 : abs(pair.x);
  if (odd) return a == b ? 0.0 : 3.4e38;
  return abs(pair.y - pair.x);
}

bool checker(float side) {
  return mod(floor(gl_FragCoord.x / side) + floor(gl_FragCoord.y / side), 2.0) < 0.5;
}

void main() {
  vec2 exact = at * extent;
  ivec2 steps = clamp(ivec2(ceil(fold)), ivec2(1), ivec2(64));
  ivec2 first = ivec2(floor(exact - 0.5 * max(fold - 1.0, 0.0)));
  vec2 pair = vec2(0.0);
  uint kind = 0u;
  float most = -1.0;
  for (int j = 0; j < steps.y; j++) {
    for (int i = 0; i < steps.x; i++) {
      ivec2 cell = clamp(first + ivec2(i, j), ivec2(0), size - 1);
      vec2 p = texelFetch(pairs, cell, 0).xy;
      uint k = texelFetch(kinds, cell, 0).x;
      float w = weight(p, k);
      if (w > most) { most = w; pair = p; kind = k; }
    }
  }
  uint a = kind & 15u;
  uint b = kind >> 4u;
  int what = show;
  if (swipe >= 0.0) what = gl_FragCoord.x < swipe ? 0 : 1;
  uint odd = what == 0 ? a : what == 1 ? b : ((a | b) & 3u);
  bool same = what >= 2 && a == b && (odd & 3u) != 0u;
  vec3 result;
  if ((odd & 1u) != 0u) {
    result = checker(3.0) ? ${vec(nanColour)} : ${vec(nanColour)} * 0.55;
    if (same) result = mix(result, vec3(0.5), 0.65);
  } else if ((odd & 2u) != 0u) {
    bool negative = what == 0 ? (a & 8u) != 0u : what == 1 ? (b & 8u) != 0u : (a & 2u) != 0u ? (a & 8u) == 0u : (b & 8u) != 0u;
    result = checker(3.0) ? (negative ? ${vec(negativeInfColour)} : ${vec(infColour)}) : vec3(0.08);
    if (same) result = mix(result, vec3(0.5), 0.65);
  } else {
    float value = what == 0 ? pair.x : what == 1 ? pair.y : pair.y - pair.x;
    float place;
    if (what == 3) {
      float size = abs(value);
      place = size == 0.0 || range.y <= 0.0 ? 0.0 : 1.0 + (log2(size) - log2(range.y)) * 0.30103 / ${decades.toFixed(1)};
    } else {
      place = range.y > range.x ? (value - range.x) / (range.y - range.x) : 0.5;
    }
    result = texture(table, vec2((clamp(place, 0.0, 1.0) * 255.0 + 0.5) / 256.0, 0.5)).rgb;
    bool zero = what == 0 ? (a & 4u) != 0u : what == 1 ? (b & 4u) != 0u : value == 0.0;
    if (zeros && zero && mod(gl_FragCoord.x + gl_FragCoord.y, 6.0) < 1.5) result = mix(result, ${vec(zeroColour)}, 0.75);
  }
  colour = vec4(result, 1.0);
}`;

interface Uploaded { pairs: WebGLTexture; kinds: WebGLTexture }

export class GlPainter implements Painter {
  readonly name = 'webgl2';
  readonly folds = true;
  private program: WebGLProgram;
  private places: Record<string, WebGLUniformLocation | null> = {};
  private textures = new Map<Tile, Uploaded>();
  private table: WebGLTexture;
  private tableOf: unknown = null;
  private width = 1;
  private height = 1;

  static make(canvas: HTMLCanvasElement): GlPainter | null {
    const gl = canvas.getContext('webgl2', { alpha: true, antialias: false, depth: false, powerPreference: 'low-power' });
    if (!gl) return null;
    try { return new GlPainter(gl); } catch { return null; }
  }

  private constructor(private gl: WebGL2RenderingContext) {
    const compile = (kind: number, source: string) => {
      const shader = gl.createShader(kind)!;
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader) ?? 'shader');
      return shader;
    };
    this.program = gl.createProgram()!;
    gl.attachShader(this.program, compile(gl.VERTEX_SHADER, vertexSource));
    gl.attachShader(this.program, compile(gl.FRAGMENT_SHADER, fragmentSource));
    gl.linkProgram(this.program);
    if (!gl.getProgramParameter(this.program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(this.program) ?? 'link');
    for (const name of ['place', 'pairs', 'kinds', 'table', 'size', 'extent', 'fold', 'show', 'sides', 'range', 'swipe', 'zeros'])
      this.places[name] = gl.getUniformLocation(this.program, name);
    gl.bindVertexArray(gl.createVertexArray());
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
    this.table = this.texture();
  }

  private texture(): WebGLTexture {
    const gl = this.gl;
    const texture = gl.createTexture()!;
    gl.bindTexture(gl.TEXTURE_2D, texture);
    for (const name of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, name, gl.NEAREST);
    for (const name of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, name, gl.CLAMP_TO_EDGE);
    return texture;
  }

  begin(width: number, height: number): void {
    const gl = this.gl;
    this.width = width;
    this.height = height;
    gl.viewport(0, 0, width, height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.useProgram(this.program);
    gl.uniform1i(this.places.pairs!, 0);
    gl.uniform1i(this.places.kinds!, 1);
    gl.uniform1i(this.places.table!, 2);
  }

  private upload(tile: Tile): Uploaded {
    const gl = this.gl;
    let there = this.textures.get(tile);
    if (!there) {
      const pairs = this.texture();
      gl.texImage2D(gl.TEXTURE_2D, 0, gl.RG32F, tile.columns, tile.rows, 0, gl.RG, gl.FLOAT, tile.pair);
      const kinds = this.texture();
      gl.texImage2D(gl.TEXTURE_2D, 0, gl.R8UI, tile.columns, tile.rows, 0, gl.RED_INTEGER, gl.UNSIGNED_BYTE, tile.kind);
      there = { pairs, kinds };
      this.textures.set(tile, there);
      if (this.textures.size > 200) {
        const [oldest, old] = this.textures.entries().next().value!;
        gl.deleteTexture(old.pairs);
        gl.deleteTexture(old.kinds);
        this.textures.delete(oldest);
      }
    }
    return there;
  }

  draw({ tile, left, top, width, height, across, down }: Placed, look: Look): void {
    const gl = this.gl;
    gl.activeTexture(gl.TEXTURE0);
    const { pairs, kinds } = this.upload(tile);
    gl.bindTexture(gl.TEXTURE_2D, pairs);
    gl.activeTexture(gl.TEXTURE1);
    gl.bindTexture(gl.TEXTURE_2D, kinds);
    gl.activeTexture(gl.TEXTURE2);
    gl.bindTexture(gl.TEXTURE_2D, this.table);
    if (this.tableOf !== look.map) {
      gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGB8, 256, 1, 0, gl.RGB, gl.UNSIGNED_BYTE, look.map.table);
      this.tableOf = look.map;
    }
    const at = this.places;
    gl.uniform4f(at.place!, (2 * left) / this.width - 1, 1 - (2 * top) / this.height, (2 * width) / this.width, (-2 * height) / this.height);
    gl.uniform2i(at.size!, tile.columns, tile.rows);
    gl.uniform2f(at.extent!, across, down);
    gl.uniform2f(at.fold!, across / width, down / height);
    gl.uniform1i(at.show!, shows.indexOf(look.show));
    gl.uniform1i(at.sides!, tile.sides);
    gl.uniform2f(at.range!, look.low, look.high);
    gl.uniform1f(at.swipe!, look.swipe);
    gl.uniform1i(at.zeros!, look.zeros ? 1 : 0);
    gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
  }

  end(): void {}

  forget(): void {
    for (const { pairs, kinds } of this.textures.values()) { this.gl.deleteTexture(pairs); this.gl.deleteTexture(kinds); }
    this.textures.clear();
  }

  close(): void {
    this.forget();
    this.gl.deleteTexture(this.table);
    this.gl.deleteProgram(this.program);
  }
}
