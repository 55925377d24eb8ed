// The 3-D view: points of the corrected map, the drive before and after, loop closures, a time
// slider. Plain WebGL: points, segments and loops are in order of time, so that a moment of the
// drive is the first n of each, and the slider uploads nothing.
(() => {
  'use strict';
  const root = document.getElementById('scene');
  const canvas = root.querySelector('canvas');
  const slider = root.querySelector('input[type=range]');
  const play = root.querySelector('button');
  const clock = root.querySelector('output');
  const gl = canvas.getContext('webgl', { antialias: true, alpha: false });
  if (!gl) return; // the picture stays

  const scene = JSON.parse(document.getElementById('scene-data').textContent);
  const decode = (text, Type) => new Type(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
  const corrected = decode(scene.corrected, Float32Array);
  const odometry = decode(scene.odometry, Float32Array);
  const loops = decode(scene.loops, Int32Array);
  const seconds = decode(scene.seconds, Float32Array);
  const pointsUntil = decode(scene.points_until, Int32Array);
  const points = Float32Array.from(decode(scene.points, Int16Array), (v) => v * scene.unit_m);
  const last = seconds.length - 1;

  const SOURCES = {
    points: [`
      attribute vec3 position;
      uniform mat4 camera;
      uniform vec2 heights;
      uniform vec3 low, middle, high, paper;
      uniform float pixelsPerMeter, distance, ratio;
      varying vec3 color;
      void main() {
        gl_Position = camera * vec4(position, 1.0);
        gl_PointSize = ratio * clamp(0.22 * pixelsPerMeter / gl_Position.w, 1.3, 5.0);
        float h = clamp((position.z - heights.x) / (heights.y - heights.x), 0.0, 1.0);
        color = h < 0.4 ? mix(low, middle, h / 0.4) : mix(middle, high, (h - 0.4) / 0.6);
        color = mix(color, paper, clamp(gl_Position.w / distance - 1.0, 0.0, 1.0) * 0.45);
      }`, `
      precision mediump float;
      varying vec3 color;
      void main() {
        if (length(gl_PointCoord - 0.5) > 0.55) discard;
        gl_FragColor = vec4(color, 1.0);
      }`],
    // Each segment is a quadrilateral of constant width on the screen; one that begins and ends in
    // the same point is a dot.
    lines: [`
      attribute vec3 start, end;
      attribute vec2 corner;
      uniform mat4 camera;
      uniform vec2 size;
      uniform float width;
      varying vec2 across;
      void main() {
        vec4 a = camera * vec4(start, 1.0), b = camera * vec4(end, 1.0);
        float near = 0.1;
        if (a.w < near && b.w > near) a = mix(a, b, (near - a.w) / (b.w - a.w));
        if (b.w < near && a.w > near) b = mix(b, a, (near - b.w) / (a.w - b.w));
        vec2 line = (b.xy / b.w - a.xy / a.w) * size;
        vec2 along = length(line) > 1e-3 ? normalize(line) : vec2(1.0, 0.0);
        vec4 p = corner.x < 0.0 ? a : b;
        vec2 shift = along * corner.x + vec2(-along.y, along.x) * corner.y;
        p.xy += shift * width / size * p.w;
        gl_Position = p;
        across = start == end ? corner : vec2(0.0, corner.y);
      }`, `
      precision mediump float;
      uniform vec4 ink;
      varying vec2 across;
      void main() {
        if (length(across) > 1.0) discard;
        gl_FragColor = ink;
      }`],
  };

  function program([vertex, fragment]) {
    const linked = gl.createProgram();
    for (const [kind, source] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(linked, shader);
    }
    gl.linkProgram(linked);
    if (!gl.getProgramParameter(linked, gl.LINK_STATUS)) throw Error(gl.getProgramInfoLog(linked));
    return linked;
  }

  function buffer(values) {
    const made = gl.createBuffer();
    gl.bindBuffer(gl.ARRAY_BUFFER, made);
    gl.bufferData(gl.ARRAY_BUFFER, values, gl.STATIC_DRAW);
    return made;
  }

  // Pairs of keyframes of a path as segments; `until[k]`: how many there are at keyframe k.
  function segments(path, pairs) {
    const values = [], until = new Int32Array(last + 1);
    for (const [later, earlier] of pairs) {
      const ends = [...path.subarray(3 * earlier, 3 * earlier + 3), ...path.subarray(3 * later, 3 * later + 3)];
      if (!ends.every(Number.isFinite)) continue;
      for (const corner of [[-1, -1], [1, -1], [1, 1], [-1, -1], [1, 1], [-1, 1]]) values.push(...ends, ...corner);
      until[later] += 1;
    }
    for (let k = 1; k <= last; k++) until[k] += until[k - 1];
    return { buffer: buffer(new Float32Array(values)), until };
  }

  const steps = [], closures = [], dots = [];
  for (let k = 1; k <= last; k++) if (!scene.starts.includes(k)) steps.push([k, k - 1]);
  for (let i = 0; i < loops.length; i += 2) closures.push([loops[i], loops[i + 1]]);
  for (const [query] of closures) dots.push([query, query]);
  const every = Array.from(seconds, (_, k) => [k, k]);
  const parts = {
    after: segments(corrected, steps), before: segments(odometry, steps),
    closures: segments(corrected, closures), dots: segments(corrected, dots),
    apart: segments(odometry, closures), here: segments(corrected, every),
  };
  const cloud = buffer(points);
  const programs = { points: program(SOURCES.points), lines: program(SOURCES.lines) };

  const home = { yaw: -1.05, pitch: 0.62, distance: 0, target: [...scene.center] };
  const view = { ...home, target: [...home.target] };
  const FIELD = Math.tan(0.42); // half of the vertical field of view
  let colors = {}, pending = false, playing = 0;

  function readColors() {
    const style = getComputedStyle(root);
    for (const role of ['paper', 'ink', 'muted', 'path', 'loop', 'low', 'middle', 'high']) {
      const hex = style.getPropertyValue('--' + role).trim();
      colors[role] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255);
    }
  }

  function axes() {
    const [cy, sy, cp, sp] = [Math.cos(view.yaw), Math.sin(view.yaw), Math.cos(view.pitch), Math.sin(view.pitch)];
    return { back: [cp * cy, cp * sy, sp], right: [-sy, cy, 0], up: [-sp * cy, -sp * sy, cp] };
  }

  function cameraMatrix() {
    const { back, right, up } = axes();
    const eye = view.target.map((v, i) => v + view.distance * back[i]);
    const dot = (a) => a[0] * eye[0] + a[1] * eye[1] + a[2] * eye[2];
    const near = view.distance / 200, far = view.distance + 4 * scene.radius_m + 100;
    const x = canvas.height / canvas.width / FIELD, y = 1 / FIELD;
    const a = (near + far) / (near - far), b = 2 * near * far / (near - far);
    const columns = [];
    for (let i = 0; i < 3; i++) columns.push(x * right[i], y * up[i], a * back[i], -back[i]);
    columns.push(-x * dot(right), -y * dot(up), -a * dot(back) + b, dot(back));
    return new Float32Array(columns);
  }

  function bind(name, camera) {
    const used = programs[name];
    gl.useProgram(used);
    gl.uniformMatrix4fv(gl.getUniformLocation(used, 'camera'), false, camera);
    return (uniform, ...values) =>
      gl['uniform' + values.length + 'f'](gl.getUniformLocation(used, uniform), ...values);
  }

  function attribute(name, at, count, stride, offset) {
    const index = gl.getAttribLocation(programs[name], at);
    gl.enableVertexAttribArray(index);
    gl.vertexAttribPointer(index, count, gl.FLOAT, false, stride, offset);
  }

  function draw() {
    pending = false;
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const [width, height] = [canvas.clientWidth * ratio, canvas.clientHeight * ratio].map(Math.round);
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    const camera = cameraMatrix(), now = Number(slider.value);
    const shown = (layer) => root.querySelector('[name=' + layer + ']').checked;
    gl.viewport(0, 0, width, height);
    gl.depthMask(true);
    gl.clearColor(...colors.paper, 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.enable(gl.DEPTH_TEST);
    gl.disable(gl.BLEND);
    if (shown('map')) {
      const set = bind('points', camera);
      for (const role of ['low', 'middle', 'high', 'paper']) set(role, ...colors[role]);
      set('heights', ...scene.heights);
      set('ratio', ratio);
      set('pixelsPerMeter', height / ratio / 2 / FIELD);
      set('distance', view.distance);
      gl.bindBuffer(gl.ARRAY_BUFFER, cloud);
      attribute('points', 'position', 3, 12, 0);
      gl.drawArrays(gl.POINTS, 0, pointsUntil[now]);
    }
    gl.depthMask(false); // lines lie on top of each other in the order in which they are drawn
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
    const set = bind('lines', camera);
    set('size', width, height);
    const lines = (part, color, pixels, alpha, first = 0) => {
      gl.bindBuffer(gl.ARRAY_BUFFER, part.buffer);
      attribute('lines', 'start', 3, 32, 0);
      attribute('lines', 'end', 3, 32, 12);
      attribute('lines', 'corner', 2, 32, 24);
      set('width', pixels * ratio);
      // Once more without depth, faintly, so that walls do not hide the drive.
      for (const [hidden, strength] of [[false, alpha], [true, 0.35 * alpha]]) {
        (hidden ? gl.disable : gl.enable).call(gl, gl.DEPTH_TEST);
        set('ink', ...color, strength);
        gl.drawArrays(gl.TRIANGLES, 6 * first, 6 * (part.until[now] - first));
      }
    };
    if (shown('before')) {
      lines(parts.before, colors.muted, 1.4, 1);
      if (shown('loops')) lines(parts.apart, colors.loop, 1, 0.45);
    }
    if (shown('after')) {
      lines(parts.after, colors.paper, 3.4, 0.8);
      lines(parts.after, colors.path, 1.8, 1);
    }
    if (shown('loops')) {
      lines(parts.closures, colors.loop, 1.2, 1);
      lines(parts.dots, colors.loop, 3.2, 1);
    }
    if (shown('after') && parts.here.until[now]) {
      lines(parts.here, colors.paper, 8, 1, parts.here.until[now] - 1);
      lines(parts.here, colors.ink, 6, 1, parts.here.until[now] - 1);
    }
    const found = parts.closures.until[now];
    clock.textContent = seconds[now].toFixed(0) + ' s of ' + seconds[last].toFixed(0) + ' s · ' +
      found + (found === 1 ? ' loop closure' : ' loop closures');
  }

  function redraw() {
    if (!pending) requestAnimationFrame(draw);
    pending = true;
  }

  function zoom(factor) {
    view.distance = Math.min(Math.max(view.distance * factor, 2), 8 * home.distance);
    redraw();
  }

  function turn(dx, dy) {
    view.yaw -= dx;
    view.pitch = Math.min(Math.max(view.pitch + dy, 0.03), Math.PI / 2);
    redraw();
  }

  function pan(dx, dy) {
    const meters = 2 * FIELD * view.distance / canvas.clientHeight;
    const right = [-Math.sin(view.yaw), Math.cos(view.yaw)], ahead = [-Math.cos(view.yaw), -Math.sin(view.yaw)];
    for (let i = 0; i < 2; i++) view.target[i] += meters * (ahead[i] * dy - right[i] * dx);
    redraw();
  }

  function reset() {
    Object.assign(view, home, { target: [...home.target] });
    redraw();
  }

  const fingers = new Map();
  canvas.addEventListener('pointerdown', (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, event);
    canvas.focus({ preventScroll: true });
  });
  for (const kind of ['pointerup', 'pointercancel']) {
    canvas.addEventListener(kind, (event) => fingers.delete(event.pointerId));
  }
  canvas.addEventListener('pointermove', (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
    if (fingers.size === 2) {
      const other = [...fingers.values()].find((finger) => finger.pointerId !== event.pointerId);
      const gap = (finger) => Math.hypot(finger.clientX - other.clientX, finger.clientY - other.clientY) + 1;
      zoom(gap(before) / gap(event));
      pan(dx / 2, dy / 2);
    } else if (event.buttons === 2 || event.shiftKey) pan(dx, dy);
    else turn(0.006 * dx, 0.006 * dy);
    fingers.set(event.pointerId, event);
  });
  canvas.addEventListener('wheel', (event) => {
    event.preventDefault();
    zoom(Math.exp(0.0012 * event.deltaY));
  }, { passive: false });
  canvas.addEventListener('contextmenu', (event) => event.preventDefault());
  canvas.addEventListener('dblclick', reset);
  const KEYS = {
    ArrowLeft: () => turn(-0.1, 0), ArrowRight: () => turn(0.1, 0), ArrowUp: () => turn(0, 0.1),
    ArrowDown: () => turn(0, -0.1), '+': () => zoom(0.85), '-': () => zoom(1.18), 0: reset,
  };
  canvas.addEventListener('keydown', (event) => {
    if (!KEYS[event.key]) return;
    event.preventDefault();
    KEYS[event.key]();
  });

  const PLAY_MS = 15000; // the whole drive
  function stop() {
    cancelAnimationFrame(playing);
    playing = 0;
    play.textContent = 'Play';
  }
  function start() {
    const from = Number(slider.value) < last ? seconds[slider.value] : seconds[0];
    const began = performance.now();
    const tick = (time) => {
      const at = from + (time - began) / PLAY_MS * seconds[last];
      let now = Number(slider.value) < last ? Number(slider.value) : 0;
      while (now < last && seconds[now + 1] <= at) now += 1;
      slider.value = now;
      draw();
      if (now < last) playing = requestAnimationFrame(tick);
      else stop();
    };
    play.textContent = 'Pause';
    playing = requestAnimationFrame(tick);
  }
  play.addEventListener('click', () => (playing ? stop() : start()));
  slider.addEventListener('input', () => { stop(); redraw(); });
  for (const box of root.querySelectorAll('[type=checkbox]')) box.addEventListener('change', redraw);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { readColors(); redraw(); });
  // A lost context (a laptop asleep, too many tabs) cannot be drawn to: back to the picture.
  canvas.addEventListener('webglcontextlost', () => root.classList.remove('live'));

  root.classList.add('live');
  readColors();
  home.distance = 1.1 * scene.radius_m / FIELD / Math.min(1, 0.85 * canvas.clientWidth / canvas.clientHeight);
  reset();
  new ResizeObserver(redraw).observe(canvas);
})();
