// Texts of a page that are too faint for their ground by WCAG AA (4.5, large text 3), each with its ratio.
const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const rgba = (text) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1); const d = canvas.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255]; };
const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3]));
const ground = (element) => { const stack = []; for (let e = element; e; e = e.parentElement) stack.push(rgba(getComputedStyle(e).backgroundColor)); return stack.reverse().reduce((under, top) => over(top, under), [255, 255, 255]); };
const poor = [];
for (const element of document.querySelectorAll('#top *, main *')) {
  if (element.closest('svg, [disabled], .strip') || !element.checkVisibility()) continue;
  if (![...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
  const style = getComputedStyle(element), under = ground(element), ink = over(rgba(style.color), under);
  const [a, b] = [light(ink), light(under)].sort((x, y) => y - x), ratio = (a + .05) / (b + .05);
  const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.5 && Number(style.fontWeight) >= 700);
  if (ratio < (large ? 3 : 4.5)) poor.push(`${element.tagName}.${element.className} ${element.textContent.trim().slice(0, 20)} ${ratio.toFixed(2)}`);
}
return poor;
